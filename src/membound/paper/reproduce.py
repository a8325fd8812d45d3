"""Figures made, or made again: numbers as JSON with what is needed to repeat them, and pictures of them."""

import datetime
import json
import time
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import torch

from membound import machine
from membound.errors import DataError, MemboundError
from membound.paper import FIGURES, LARGE, OF_LENET, PANELS, figure
from membound.paper.lab import NETS, Lab, count_networks
from membound.report.text import show_duration
from membound.store.whole import replace_file

RESULTS = Path(__file__).parents[3] / "results" / "reproduce"  # of the clone
PACKAGES = ("membound", "numpy", "torch", "triton", "matplotlib")
NOT_CLAIMED = "nothing is claimed: networks this small, trained this briefly, say nothing of the paper's"


def choose(name: str) -> list[str]:
    """The figures that a name stands for."""
    if name == "all":
        return list(FIGURES)
    if name not in (*FIGURES, *LARGE):
        near = get_close_matches(name, known := ("all", *FIGURES, *LARGE), 1)
        meant = f"did you mean {near[0]}?" if near else f"choose {', '.join(known)}"
        raise MemboundError(f"there is no figure {name!r}: {meant}")
    return [name]


def nets_of(name: str, lab: Lab) -> Sequence[str]:
    """The networks of a figure, whose data have to be there."""
    if name in LARGE:
        return ()
    return lab.nets if name in PANELS else ("lenet",) if name in OF_LENET else ("quick",)


def reproduce(name: str, lab: Lab, folder: Path) -> dict[str, Any]:
    """Train what a figure needs, and write `name.json`, `name.svg` and `name.png` into a folder."""
    if (cost := _say_cost(name, lab)) is not None:
        lab.say(cost)
    module, begun = figure(name), time.monotonic()
    before = lab.trained
    numbers = module.run(lab)
    document = {
        "figure": name,
        "about": module.__doc__,
        "command": _command(name, lab),
        "quick": lab.size.quick,
        "most_steps": lab.size.most_steps,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "hardware": _hardware(lab.device),
        "versions": machine.versions(PACKAGES),
        "seconds": round(time.monotonic() - begun, 1),
        "trained": lab.trained
        - before,  # networks; the time of others, that were cached, is not in the seconds
        **_judge(name, numbers, is_full=lab.size.is_full),
        "numbers": numbers,
    }
    if lab.trained == before and (old := _same(folder, name, document)):
        document = old  # with the hardware and the time that it was made with
    write(folder, name, document)
    return document


def _judge(name: str, numbers: Mapping[str, Any], *, is_full: bool) -> dict[str, Any]:
    """The claims of a figure, or why there are none: a smoke test decides nothing."""
    return {"claims": figure(name).claims(numbers)} if is_full else {"claims": [], "not_claimed": NOT_CLAIMED}


def _say_cost(name: str, lab: Lab) -> str | None:
    """What the figure took in full, before anything is trained; None of a small one, or where nothing is known."""
    try:
        made = read(RESULTS, name)
        networks, hardware = made["trained"], made["hardware"]
    except (DataError, KeyError):
        return None
    if not lab.size.is_full or networks is None or name in LARGE:
        return None
    where = hardware.get("gpu") or hardware["cpu"]
    less = [
        "--quick",
        *(["--net lenet"] if name in PANELS and len(lab.nets) > 1 else []),
        "--seeds",
        "--steps",
    ]
    return (
        f"{name}: in full, {count_networks(networks)}, which took {show_duration(made['seconds'])} on {where}, "
        f"and take far longer on a CPU; {', '.join(less[:-1])} or {less[-1]} make it less"
    )


def _is_full(document: Mapping[str, Any]) -> bool:
    return not document["quick"] and document.get("most_steps") is None


def _same(folder: Path, name: str, document: Mapping[str, Any]) -> dict[str, Any] | None:
    """What is there already, if it has these numbers."""
    try:
        old = read(folder, name)
    except DataError:
        return None
    numbers = json.loads(json.dumps(document["numbers"]))
    return old if (old["numbers"], old.get("command")) == (numbers, document["command"]) else None


def _command(name: str, lab: Lab) -> str:
    options = [f"--net {net}" for net in lab.nets] if len(lab.nets) < len(NETS) else []
    options += ["--quick"] if lab.size.quick else []
    options += [] if lab.longer else ["--no-longer"]
    options += [] if lab.size.most_steps is None else [f"--steps {lab.size.most_steps}"]
    if lab.size.repeated is not None and name not in LARGE:
        options.append(f"--seeds {lab.size.repeated}")
    if name in LARGE:
        options += ["--data FOLDER", *(["--init FILE"] if lab.imagenet.init is not None else [])]
        options += [f"--seeds {lab.imagenet.seeds}", f"--candidate-steps {lab.imagenet.candidate_steps}"]
        options += [f"--steps {lab.imagenet.steps}"] if lab.imagenet.steps is not None else []
        options += [f"--batch-size {lab.imagenet.batch_size}"] if lab.imagenet.batch_size is not None else []
    return " ".join(["membound reproduce", name, *options])


def _hardware(device: torch.device) -> dict[str, Any]:
    found = machine.hardware()
    if device.type == "cuda":
        found["gpu"] = torch.cuda.get_device_name(device)
    return found


def write(folder: Path, name: str, document: Mapping[str, Any]) -> None:
    """The numbers, and a picture of them."""
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / f"{name}.json", [json.dumps(document, indent=1, allow_nan=False).encode() + b"\n"])
    draw(folder, name, document)


def draw(folder: Path, name: str, document: Mapping[str, Any]) -> None:
    """A picture in two formats."""
    from membound.paper.pictures import save

    save(folder, name, document)


def read(folder: Path, name: str) -> dict[str, Any]:
    """What was written."""
    path = folder / f"{name}.json"
    try:
        document = json.loads(path.read_text())
        document["claims"], document["seconds"] + 0
        document |= _judge(name, document["numbers"], is_full=_is_full(document))  # as they are judged now
        figure(name).table(document["numbers"])
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}: make it with `membound reproduce {name}`") from error
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
        raise DataError(f"{path} is not what `membound reproduce {name}` writes: make it again") from error
    found: dict[str, Any] = document
    return found
