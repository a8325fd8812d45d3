"""How many public architectures run, and with torch's answer: benchmarks/architectures.csv, one process each.

    python benchmarks/coverage.py results/coverage.json --processes 12

Right is within 1e-4 of torch in float64, on batches of 1 and 3; sparse networks have 90 % zeros and dead channels.
'unstable' is beyond that, where torch in float32 is as far from torch in float64 itself; all else is 'wrong'. Of both,
`floor` says how far a runtime would be that sums exactly and rounds each layer's result once to float32, and
`input_floor` how far torch in float64 moves when its input is rounded up or down by half of float32's last bit.

A run goes on where it was stopped: what the file has of this commit is not run again. Outside a checkout, COMMIT names
the commit. The libraries (timm, pytorchcv, transformers, segmentation-models-pytorch, monai, torchvision) are installed
in an environment of their own, without their dependencies on torch. A network that cannot be built there is 'absent'.
"""

import contextlib
import csv
import importlib
import json
import multiprocessing
import os
import subprocess
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from multiprocessing.connection import wait
from pathlib import Path

HERE = Path(__file__).parent
SECONDS = 600  # for one network
NOTE = (
    "'unstable' is beyond 1e-4 and by the letter wrong: torch in float32 is as far from torch in float64 there. "
    "'floor' is how far a runtime would be that sums exactly and rounds each layer's result once to float32; "
    "'input_floor' how far float64 moves when the input is off by half of float32's last bit. Each network names the "
    "commit that it ran on."
)
PACKAGES = (
    "torch", "torchvision", "numpy", "timm", "pytorchcv", "transformers", "segmentation-models-pytorch", "monai",
)  # fmt: skip


def main(out: str, only: str, processes: int) -> None:
    rows = list(csv.DictReader((HERE / "architectures.csv").read_text().splitlines()))
    commit = _commit()
    before = json.loads(Path(out).read_text())["networks"] if Path(out).exists() else []
    results = {_key(found): found for found in before}
    missing = [
        row
        for row in rows
        if only in ",".join(row.values()) and results.get(_key(row), {}).get("commit") != commit
    ]
    prepare()
    for row, found in judgments(missing, processes):
        results[_key(row)] = {**row, **found, "commit": commit}
        print(row["library"], row["name"], found["result"], found.get("why", "")[:200], flush=True)
        _write(out, [results[_key(row)] for row in rows if _key(row) in results])
    print(dict(Counter(found["result"] for found in results.values())))


def _key(row: dict[str, str]) -> tuple[str, str]:
    return row["library"], row["name"]


def _commit() -> str:
    asked = ["git", "rev-parse", "--short=12", "HEAD"]
    found = (
        os.environ.get("COMMIT")
        or subprocess.run(asked, capture_output=True, text=True, cwd=HERE).stdout.strip()
    )
    if not found:
        raise SystemExit("this is no checkout of git: name the commit, as in COMMIT=1a2b3c python ...")
    return found


def _write(out: str, results: list[dict[str, str]]) -> None:
    from membound.machine import describe
    from membound.store.whole import replace_file

    families = {family: Counter() for family in sorted({result["family"] for result in results})}
    for result in results:
        families[result["family"]][result["result"]] += 1
    found = {
        **describe(PACKAGES),
        "command": "python benchmarks/coverage.py results/coverage.json",
        "note": NOTE,
        "counts": Counter(result["result"] for result in results),
        "families": families,
        "networks": results,
    }
    replace_file(Path(out), [json.dumps(found, indent=1).encode() + b"\n"])


def prepare() -> None:
    """What all processes need, imported once."""
    warnings.simplefilter("ignore")
    import torch

    torch.set_num_threads(1)
    # torchvision's compiled operators are of another build of torch, and nothing here needs them.
    for name in ("nms", "qnms"):
        torch.library.define(
            f"torchvision::{name}", "(Tensor boxes, Tensor scores, float threshold) -> Tensor"
        )
    for name in ("timm", "transformers", "pytorchcv.model_provider"):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def judgments(rows: list[dict[str, str]], processes: int) -> Iterator[tuple[dict[str, str], dict[str, str]]]:
    """Each network with its judgment, as they come, by processes of their own, which may fail or take too long."""
    context = multiprocessing.get_context("fork")
    waiting, running = list(rows), {}
    while waiting or running:
        while waiting and len(running) < processes:
            row = waiting.pop(0)
            ours, theirs = context.Pipe(duplex=False)
            process = context.Process(target=_send, args=(theirs, row))
            process.start()
            theirs.close()
            running[ours] = row, process, time.monotonic() + SECONDS
        soonest = min(end for _, _, end in running.values())
        ready = wait(list(running), max(0.0, soonest - time.monotonic()))
        for pipe, (row, process, end) in list(running.items()):
            if pipe in ready or time.monotonic() > end:
                del running[pipe]
                yield row, _received(pipe, process)


def _send(pipe, row: dict[str, str]) -> None:
    pipe.send(judge(row))


def _received(pipe, process) -> dict[str, str]:
    try:
        found = pipe.recv() if pipe.poll() else {"result": "failed", "why": f"over {SECONDS} seconds"}
    except EOFError:
        process.join()
        found = {"result": "failed", "why": f"the process ended with {process.exitcode}"}
    process.kill()
    process.join()
    pipe.close()
    return found


def judge(row: dict[str, str]) -> dict[str, str]:
    from _architectures import build

    shape = tuple(map(int, row["input"].split("x")))
    try:
        net = build(row["library"], row["name"], shape)
    except Exception as error:
        return {"result": "absent", "why": f"{type(error).__name__}: {error}"[:300]}
    if row["sparse"] == "True":
        _thin_out(net)
    return _compare(net, shape, words=1000 if row["name"].startswith("BERT") else 0)


def _thin_out(net) -> None:
    """Nine of ten weights are zero, and every fourth output of a layer has none."""
    import torch

    chance = torch.Generator().manual_seed(1)
    for parameter in net.parameters():
        if parameter.dim() >= 2 and parameter.shape[0] > 4:
            parameter.data *= (torch.rand(parameter.shape, generator=chance) < 0.1) * 3.0
            parameter.data[torch.rand(len(parameter), generator=chance) < 0.25] = 0


def _compare(net, shape, words=0) -> dict[str, str]:
    import copy

    import numpy as np
    import torch

    from membound.capture import capture
    from membound.errors import MemboundError
    from membound.run import Net
    from membound.store.file import read_bytes, to_bytes

    def example(batch: int):
        chance = torch.Generator().manual_seed(batch)
        if words:
            return torch.randint(0, words, (batch, *shape), generator=chance)
        return torch.randn(batch, *shape, generator=chance)

    try:
        run = Net(read_bytes(to_bytes(capture(net, example(1)))), max_batch=3, threads=2)
    except MemboundError as error:
        return {"result": "refused", "why": str(error)[:300]}
    worst = own = 0.0
    for batch in (1, 3):
        x = example(batch)
        with torch.no_grad():
            single = net(x).double().numpy()
            try:
                wanted = copy.deepcopy(net).double()(x if words else x.double()).numpy()
            except RuntimeError:  # a constant of its own in float32
                wanted = single
        scale = max(1.0, np.abs(wanted).max())
        off = np.abs(run(x.numpy()) - wanted).max() / scale
        worst = max(worst, float(off) if np.isfinite(off) else 1e9)
        own = max(own, float(np.abs(single - wanted).max() / scale))
    result = "right" if worst < 1e-4 else "unstable" if worst <= own else "wrong"
    found = {"result": result, "off": f"{worst:.1e}", "torch_off": f"{own:.1e}"}
    return found if result == "right" or words else found | _floors(net, example(1))


def _floors(net, x) -> dict[str, str]:
    """How far float32 takes the network from float64, however exact its sums are."""
    import copy

    import torch

    double = copy.deepcopy(net).double()
    rounded = copy.deepcopy(double)
    for part in rounded.modules():
        if not list(part.children()):
            part.register_forward_hook(lambda part, given, out: out.float().double())
    signs = torch.randn(x.shape, generator=torch.Generator().manual_seed(5)).sign()
    with torch.no_grad():
        wanted = double(x.double())
        scale = max(1.0, float(wanted.abs().max()))
        layers = float((rounded(x.double()) - wanted).abs().max()) / scale
        inputs = float((double(x.double() * (1 + 2.0**-24 * signs.double())) - wanted).abs().max()) / scale
    return {"floor": f"{layers:.1e}", "input_floor": f"{inputs:.1e}"}


if __name__ == "__main__":
    from _record import arguments

    parser = arguments(__doc__)
    parser.add_argument("out", nargs="?", default="results/coverage.json")
    parser.add_argument("--only", default="", help="networks whose line in architectures.csv has this in it")
    parser.add_argument("--processes", type=int, default=1, help="how many networks at a time")
    parser.add_argument(
        "--one", type=json.loads, help="one network, a line of the table as JSON; prints its judgment"
    )
    options = parser.parse_args()
    if options.one:
        prepare()
        print(json.dumps(judge(options.one)))
    else:
        main(options.out, options.only, options.processes)
