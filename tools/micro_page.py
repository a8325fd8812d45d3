"""The tables of docs/MICRO_MEASURED.md, from results/micro.json and its like: python tools/micro_page.py"""

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE, RESULTS = ROOT / "docs" / "MICRO_MEASURED.md", ROOT / "results" / "micro.json"
PEERS, FITS = ROOT / "results" / "micro-peers.json", ROOT / "results" / "micro-fits.json"
FITTING, ARENAS = ROOT / "results" / "micro-fit.json", ROOT / "results" / "micro-arenas.json"
BEGIN, END = "<!-- measured: python tools/micro_page.py -->\n", "<!-- end -->\n"
RACED = "<!-- raced: python tools/micro_page.py -->\n"
FITTED = "<!-- fitted: python tools/micro_page.py -->\n"
TFLM = ROOT / "results" / "micro-tflm.json"
SAME_TASK = "<!-- same task: python tools/micro_page.py -->\n"
SPEED = ROOT / "results" / "micro-speed.json"
TIMED = "<!-- speed: python tools/micro_page.py -->\n"
BESIDE = "<!-- arenas: python tools/micro_page.py -->\n"


DATA = {"mnist": "MNIST", "words": "keywords, synthetic", "cifar10": "CIFAR-10"}
RUNTIMES = {"tflm": "TensorFlow Lite Micro", "membound": "membound"}


def _accuracy(row: dict[str, Any]) -> str:
    if row["accuracy"] is None:
        return ""
    return f"{row['accuracy']:.2f} % ({row['float_accuracy']:.2f} %)"


def table(rows: list[dict[str, Any]]) -> str:
    """One line for each network."""
    lines = [
        "| network | constants | code | RAM | stack | arena with whole maps | multiplications | instructions, M3 | "
        "accuracy (in floating point) |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        board, small = row["boards"]["cortex-m3"], row["boards"]["cortex-m4"]
        cells = [
            row["name"], f"{row['flash_bytes']:,}", f"{small['code_bytes']:,}", f"{row['ram_bytes']:,}",
            f"{small['stack_bytes']:,}", f"{row['arena_bytes_whole']:,}", f"{row['multiplications']:,}",
            f"{board['instructions']:,}", _accuracy(row),
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def race(found: dict[str, Any]) -> str:
    """CMSIS-NN and our files, a line each; a column for each board."""
    peer = found["cmsis_nn"]
    boards = list(peer["boards"])
    lines = [f"| network | {' | '.join(boards)} |", f"|---|{'---|' * len(boards)}"]
    theirs = [f"{peer['boards'][name]['instructions']:,}" for name in boards]
    lines.append(f"| ResNet-8 as published, CMSIS-NN | {' | '.join(theirs)} |")
    for row in found["rows"]:
        cells = [f"{each['instructions']:,} ({each['of_cmsis']:.2f})" for each in row["boards"].values()]
        lines.append(f"| {row['name']}, {row['accuracy']:.2f} % | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def fitted(found: dict[str, Any]) -> str:
    """What was reached within flash and RAM, a line for each network and way to train its activations."""
    lines = [
        "| network | activations | flash | RAM | seeds | accuracy | in floating point | cost, points |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for each in found["summary"]:
        cells = [
            each["name"], each["activations"], f"{each['most_flash']:,}", f"{each['most_ram']:,}",
            str(each["seeds"]), f"{_mean(each['accuracy'])} %",
            f"{_mean(each['float_accuracy'])} %" if "float_accuracy" in each else "",
            _mean(each["cost"]) if "cost" in each else "",
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _mean(found: dict[str, Any]) -> str:
    spread = f" ± {found['std']:.2f}" if found["n"] > 1 else ""
    return f"{found['mean']:.2f}{spread}"


def arenas(found: dict[str, Any]) -> str:
    """TensorFlow Lite Micro's RAM and ours, a line for each network."""
    lines = ["| network | TensorFlow Lite Micro | rows | whole maps |", "|---|---|---|---|"]
    for row in found["rows"]:
        cells = [
            row["name"],
            *(f"{row[key]:,}" for key in ("tflm_arena_bytes", "arena_bytes_rows", "arena_bytes_whole")),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def same_task(found: dict[str, Any], fits: dict[str, Any]) -> str:
    """Both runtimes, a line for each network; of CIFAR-10 ours are those of micro_fit.py."""
    lines = [
        "| task | network | runtime | accuracy | flash at -Os (code, rest) | flash at -O2 | RAM | "
        "instructions at -Os | instructions at -O2 |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in sorted(found["rows"], key=lambda row: list(DATA).index(row["data"])):
        cells = [
            DATA[row["data"]], row["network"], RUNTIMES[row["runtime"]], f"{row['accuracy']:.2f} %",
            f"{row['flash_bytes']:,} ({row['code_bytes']:,}, {row['constant_bytes']:,})",
            f"{row['levels']['-O2']['flash_bytes']:,}", f"{row['ram_bytes']:,}",
            *(f"{row['levels'][level]['instructions']:,}" for level in ("-Os", "-O2")),
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    for each in fits["summary"]:
        if each["data"] == "cifar10" and each["name"].startswith("cifar10"):
            largest = max(
                (r for r in fits["rows"] if r["name"] == each["name"]), key=lambda r: r["flash_bytes"]
            )
            cells = [
                DATA["cifar10"], f"ResNet-8, fitted ({each['name']})", RUNTIMES["membound"],
                f"{_mean(each['accuracy'])} %",
                f"{largest['flash_bytes']:,} ({largest['code_bytes']:,}, {largest['constant_bytes']:,})",
                "not measured", f"{each['most_ram']:,}", "not measured", "not measured",
            ]  # fmt: skip
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def speed(found: dict[str, Any]) -> str:
    """What was counted of each network, and how far the estimate is from it."""
    lines = [
        "| network | cycles at -Os | at 80 MHz | estimate off by | cycles at -O2 | at 80 MHz | estimate off by |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in found["rows"]:
        cells = [row["name"]]
        for each in row["levels"].values():
            cells += [f"{each['cycles']:,}", f"{each['ms_at_80_mhz']} ms", f"{each['off_percent']:+.1f} %"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def replaced(page: str, begin: str, text: str) -> str:
    before, rest = page.split(begin)
    return before + begin + text + END + rest.split(END, 1)[1]


def written(page: str) -> str:
    """The page with its tables made anew."""
    rows = [row for file in (RESULTS, FITS) for row in json.loads(file.read_text())["rows"]]
    page = replaced(page, BEGIN, table(rows))
    tables = (
        (RACED, PEERS, race),
        (FITTED, FITTING, fitted),
        (BESIDE, ARENAS, arenas),
        (TIMED, SPEED, speed),
    )
    for begin, file, make in tables:
        if begin in page:
            page = replaced(page, begin, make(json.loads(file.read_text())))
    if SAME_TASK in page:
        both = (json.loads(file.read_text()) for file in (TFLM, FITTING))
        page = replaced(page, SAME_TASK, same_task(*both))
    return page


def main() -> None:
    PAGE.write_text(written(PAGE.read_text()))


if __name__ == "__main__":
    main()
