"""membound inspect FILE: what a model file holds."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from membound.cli import options
from membound.cli.fit_tables import on_device
from membound.cli.tables import Column, print_table, say
from membound.errors import MemboundError
from membound.report.text import weights_first
from membound.units import name_examples

File = Annotated[
    Path,
    typer.Argument(
        metavar="FILE", help="A model file (.safetensors), or hf://ORG/NAME on the Hugging Face Hub."
    ),
]


# Columns of what a tensor of few bits is made of, and where inspect has them.
PARTS = {
    "numbers": "value_bytes",
    "positions": "position_bytes",
    "scales": "scale_bytes",
    "palette": "palette_bytes",
}


def inspect_command(
    file: File,
    clock: options.Clock = None,
    compiled: options.Compiled = "Os",
    as_json: options.Json = False,
) -> None:
    """List the layers of a model file: nonzeros, formats, bytes.

    "kept" is the part of a layer's weights, as it was trained, that are not zero.

    membound inspect net.safetensors
    """
    from membound.run.inspection import inspect

    facts = inspect(file, clock=clock, compiled=compiled)
    if "micro" not in facts and (clock is not None or compiled != "Os"):
        raise MemboundError(
            f"--clock and --compiled are for files of a microcontroller, which {file} is not: leave them out"
        )
    options.print_json(facts) if as_json else _print(facts)


def _print(facts: dict[str, Any]) -> None:
    few = any(layer["distinct"] is not None for layer in facts["layers"])
    columns = [
        Column("layer", right=False), Column("shape", 3, right=False), Column("nonzeros", 2), Column("kept", 1),
        Column("format", 4, right=False), Column("values", 1, right=False),
        *([Column("distinct", 5), *(Column(part, 6) for part in PARTS)] if few else []), Column("bytes"),
    ]  # fmt: skip
    rows = []
    for layer in weights_first(facts["layers"]):
        parts = [f"{layer[key]:,}" for key in PARTS.values()]
        distinct = "" if layer["distinct"] is None else f"{layer['distinct']:,}"
        rows.append([
            layer["name"], _shape(layer), f"{layer['nonzeros']:,}", f"{layer['kept']:.2%}",
            layer["format"], layer["values"], *([distinct, *parts] if few else []), f"{layer['bytes']:,}",
        ])  # fmt: skip
    print_table(columns, rows)
    typer.echo()
    memory = facts["memory_bytes"]
    image = facts["mean_image_bytes"]
    for word, text in _ports(facts):
        say(word, text)
    say("nonzeros", f"{facts['nonzeros']:,} of {facts['parameters']:,} parameters")
    parts = facts["parts"]
    weights = (
        f"values {parts['value_bytes']:,}, positions {parts['position_bytes']:,}, scales and biases "
        f"{parts['scale_bytes'] + parts['bias_bytes']:,}, palettes {parts['palette_bytes']:,}"
        if few
        else f"weights {facts['weight_bytes']:,}"
    )
    say(
        "file",
        f"{facts['file_bytes']:,} bytes: {weights}, header {facts['header_bytes']:,}"
        + (f", mean image {image:,}" if image else "")
        + (f", packing {parts['other_bytes']:,}" if parts["other_bytes"] else ""),
    )
    say("sha256", facts["sha256"])
    say("dense", f"{facts['dense_file_bytes']:,} bytes in float32: {facts['ratio']:.1f} times this file")
    if "micro" in facts:
        say("id", f"{facts['micro']['identity']} (NET_ID of its C)")
    for word, text in on_device(facts):
        say(word, text)
    if memory is None:
        say("memory", "unknown: no compiled core")
        return
    say(
        "memory",
        f"{max(memory.values()):,} bytes for one {name_examples(facts['input_shape'])[:-1]} on one thread, file "
        f"included, on {'a computer, not on the microcontroller' if 'micro' in facts else 'any CPU'}"
        f"{_list_memory(memory)}",
    )


def _list_memory(memory: Mapping[str, int]) -> str:
    """What each instruction set takes, where they differ.

    >>> _list_memory({"scalar": 1000, "avx2": 2000}), _list_memory({"scalar": 2000, "avx2": 2000})
    (': scalar 1,000, avx2 2,000', '')
    """
    if len(set(memory.values())) == 1:
        return ""
    return ": " + ", ".join(f"{isa} {total:,}" for isa, total in memory.items())


def _ports(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """The input, or what each of several inputs and outputs is.

    >>> port = {"name": "ids", "shape": [16], "type": "whole"}
    >>> _ports({"inputs": [port], "outputs": [{"name": "y", "shape": [2], "type": "float32"}]})
    [('input', 'ids: 16 of whole numbers'), ('output', 'y: 2 of float32')]
    """
    if "inputs" not in facts:
        return [("input", _input(facts))]
    kinds = {"whole": "whole numbers", "float32": "float32"}
    return [
        (which, f"{port['name']}: {'x'.join(map(str, port['shape'])) or 'a number'} of {kinds[port['type']]}")
        for which in ("input", "output")
        for port in facts[f"{which}s"]
    ]


def _input(facts: dict[str, Any]) -> str:
    """What the network takes, and who prepares it.

    >>> _input({"input_shape": [1, 28, 28], "preprocess": {"scale": 0.5}})
    '1x28x28 of uint8, pixels from 0 to 255; the file stores how to prepare them'
    """
    from membound.data.preprocess import taken_by

    shape, said = "x".join(map(str, facts["input_shape"])), facts["preprocess"]
    if said is None:
        return f"{shape} of float32, prepared: the file does not say how"
    if taken_by(said) == "uint8":
        return f"{shape} of uint8, pixels from 0 to 255; the file stores how to prepare them"
    return f"{shape} of float32, as the training data was"


def _shape(layer: Mapping[str, Any]) -> str:
    """The shape, and beside it the one it had before dead channels were left out.

    >>> _shape({"shape": [4, 2], "original_shape": [9, 2]})
    '4x2 of 9x2'
    """
    shape, original = ("x".join(map(str, layer[key])) for key in ("shape", "original_shape"))
    return shape if shape == original else f"{shape} of {original}"
