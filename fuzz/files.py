"""Read damaged model files, and run those that are accepted: no error but a ModelError, no crash.

    python fuzz/files.py --count 1000000 --seed 0
    python fuzz/files.py --count 1000000 --seed 0 --packed    files of packed layers only, versions 2 and 3
    python fuzz/files.py --count 50000 --seed 0 --mixing      attention, norms, resizing, embeddings, recurrent steps

Mutation k of a seed is always the same, so that a failure is repeated by `--first k --count 1`; its bytes are saved as
fuzz-failure-FIRST.safetensors, FIRST being its process's first mutation, also before a crash of the compiled core if
`--save-each` is given. under_asan.sh runs this with the core under sanitizers.
"""

import argparse
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import pairwise
from pathlib import Path

import mixing
import mutations
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))
from _record import record

from membound.errors import ModelError
from membound.store.file import read_bytes
from membound.store.model import StoredModel

RUN_UP_TO = 1_000_000  # elements of all values, and of all tensors: larger networks are only read


def runner() -> Callable[[StoredModel], None] | None:
    """What runs a network on a small input, where the compiled core is there."""
    try:
        from membound.run import Net
    except ImportError:
        return None

    def run(model: StoredModel) -> None:
        net = Net(model, threads=1)
        given = []
        for port in net.inputs:
            shape = (2, *port.shape)
            even = np.linspace(-2, 2, int(np.prod(shape)), dtype=np.float32).reshape(shape)
            given.append((np.arange(even.size) % 3).reshape(shape) if port.whole else even)
        with np.errstate(all="ignore"):
            net(*given)

    return run


def try_one(content: bytes, run: Callable[[StoredModel], None] | None) -> str:
    """What became of one file."""
    try:
        model = read_bytes(content)
    except ModelError as error:
        return f"rule {error.rule}"
    values = sum(int(np.prod(shape)) for shape in model.shapes)
    if run is None or max(values, sum(tensor.size for tensor in model.tensors.values())) > RUN_UP_TO:
        return "accepted, not run"
    try:
        run(model)
    except ModelError:
        return "accepted, not runnable"
    return "ran"


def try_share(options: argparse.Namespace, share: range) -> Counter[str]:
    """The outcomes of one process's mutations."""
    originals, mostly = mutations.originals, ""
    if options.packed:
        originals, mostly = mutations.packed_originals, "packed"
    elif options.mixing:
        originals, mostly = mixing.files, "nodes"
    sound = originals()
    run = None if options.no_run else runner()
    failure = Path(f"fuzz-failure-{share.start}.safetensors")
    outcomes: Counter[str] = Counter()
    for index in share:
        rng = random.Random((options.seed << 40) + index)
        content = mutations.mutate(rng.choice(sound), rng, mostly)
        if options.save_each:
            failure.write_bytes(content)
        try:
            outcomes[try_one(content, run)] += 1
        except BaseException:
            failure.write_bytes(content)
            print(f"mutation {index} of seed {options.seed} failed: saved as {failure}", file=sys.stderr)
            raise
    failure.unlink(missing_ok=True)
    return outcomes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--packed", action="store_true", help="only files of one packed layer, the smallest")
    parser.add_argument(
        "--mixing", action="store_true", help="only networks of attention, norms and the like"
    )
    parser.add_argument("--no-run", action="store_true", help="only read")
    parser.add_argument("--save-each", action="store_true", help="write each file before it is tried")
    parser.add_argument("--out", help="a JSON file for the outcomes")
    options = parser.parse_args()
    ends = [
        options.first + options.count * part // options.processes for part in range(options.processes + 1)
    ]
    shares = [range(begin, end) for begin, end in pairwise(ends)]
    start = time.perf_counter()
    outcomes: Counter[str] = Counter()
    with ProcessPoolExecutor(options.processes) as executor:
        for found in executor.map(partial(try_share, options), shares):
            outcomes += found
    each = (time.perf_counter() - start) / max(options.count, 1)
    for outcome, count in outcomes.most_common():
        print(f"{count:9,} {outcome}")
    print(f"{options.count:,} mutations, {each * 1e6:.0f} microseconds each; none failed")
    if options.out:
        payload = {
            "seed": options.seed,
            "packed": options.packed,
            "mixing": options.mixing,
            "count": options.count,
            "sanitizers": ["address", "undefined"] if "ASAN_OPTIONS" in os.environ else [],
            "failures": 0,
            "ran": not options.no_run and runner() is not None,
            "outcomes": dict(outcomes),
        }
        record(options.out, payload)


if __name__ == "__main__":
    main()
