"""What membound fit says at its end: tables, or JSON."""

from pathlib import Path
from typing import Any

import typer

from membound.cli import options


def tell(
    summary: dict[str, Any], page: Path | None, run_dir: Path | None, hub: Path | None, as_json: bool
) -> None:
    """What came of it, and where it is."""
    if as_json:
        from membound.search.summary import without_curves

        places = {
            name: None if path is None else str(path)
            for name, path in (("report", page), ("run_dir", run_dir), ("hub", hub))
        }
        options.print_json(without_curves(summary) | places)
        return
    from rich.console import Console

    console = Console()
    console.print(_summary_table(summary))
    for final in summary["finals"]:
        console.print(_layer_table(final, titled=len(summary["finals"]) > 1))
    for final in summary["finals"]:
        if final["member_accuracies"]:
            alone = ", ".join(map(_percent, final["member_accuracies"]))
            typer.echo(f"members   {alone}")
        for note in final.get("tried", ()):
            typer.echo(f"tried     {note}")
        for line in on_device(final.get("micro"), final.get("memory_limit")):
            typer.echo(line)
        typer.echo(f"file      {final['file']}")
    if page is not None:
        typer.echo(f"report    {page}")
    if hub is not None:
        typer.echo(f"folder    {hub}: to upload, hf upload ORG/{hub.absolute().name} {hub}")
    if run_dir is not None:
        typer.echo(f"run       {run_dir}")


def on_device(micro: dict[str, Any] | None, allowed: int | None) -> list[str]:
    """What a network takes on a microcontroller."""
    if micro is None:
        return []
    bound = "" if allowed is None else f" of {allowed:,}"
    constants, code = micro["constant_bytes"], micro["code_bytes"]
    return [
        f"flash     {micro['flash_bytes']:,} bytes: {constants:,} of constants, {code:,} of code at -Os for a "
        f"Cortex-M4 ({micro['code_from']}); startup code is apart",
        f"ram       {micro['ram_bytes']:,} bytes{bound}: {micro['context_bytes']:,} of context, "
        f"{micro['stack_bytes']:,} of stack; images are fed by rows",
    ]


def _summary_table(summary: dict[str, Any]) -> Any:
    """Every final network, and the dense one, a line each."""
    from rich.table import Table

    from membound.report.text import show_count, show_milliseconds

    table = Table("network")
    for head in ("accuracy", "errors", "file bytes", "memory", "latency", "nonzeros"):
        table.add_column(head, justify="right")
    dense = [] if summary["dense"] is None else [{"name": "dense", **summary["dense"]}]
    for net in [*dense, *summary["finals"]]:
        table.add_row(
            net["name"],
            _percent(net["accuracy"]),
            "n/a" if net["errors"] is None else f"{net['errors']:,} of {net['images']:,}",
            show_count(net["file_bytes"]),
            show_count(net["memory_bytes"]),
            show_milliseconds(net["latency_ms"]),
            show_count(net["nonzeros"]),
        )
    return table


def _layer_table(final: dict[str, Any], titled: bool) -> Any:
    from rich.table import Table

    table = Table("layer", "shape", title=final["name"] if titled else None, title_justify="left")
    for column in ("nonzeros", "kept", "bytes"):
        table.add_column(column, justify="right")
    table.add_column("format")
    table.add_column("values")
    for layer in final["layers"]:
        kept = f"{layer['nonzeros'] / layer['size']:.2%}" if layer["size"] else "n/a"
        shape = " x ".join(map(str, layer["shape"]))
        table.add_row(
            layer["name"], shape, f"{layer['nonzeros']:,}", kept, f"{layer['bytes']:,}", layer["format"],
            layer["values"],
        )  # fmt: skip
    return table


def _percent(accuracy: float | None) -> str:
    return "n/a" if accuracy is None else f"{accuracy:.2f} %"
