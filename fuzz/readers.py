"""Damaged inputs through every reader: no error but membound's own, in one line; no hang; no absurd memory.

    python fuzz/readers.py --seconds 10 --seed 0
    python fuzz/readers.py --readers idx,npz --count 100000
    fuzz/under_asan.sh readers --seconds 600        with the core under sanitizers

Input k of a seed is always the same, so a failure is repeated by `--readers NAME --first K --count 1`; its bytes are
saved as fuzz-failure-NAME-K in the folder where this runs.
"""

import argparse
import contextlib
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from corpus import READERS, Reader

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))
from _record import record

from membound.errors import MemboundError

PATIENCE_SECONDS = 20.0  # for one input of a few kilobytes, on a machine that may be busy
MEMORY = 1 << 30  # bytes of address space beyond what reading sound inputs has taken
RESIDENT = 256 << 20  # bytes that all reading together may really take
FILE = 64 << 20  # bytes of any file that is written
LINE = 2000  # characters of a message
SCRATCH = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # in memory: a disk takes most of the time


class Hung(BaseException):
    """One input took too long."""


def limit_memory() -> None:
    """Whatever asks for far more than its input has is refused by the system."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE, resource.RLIM_INFINITY))


def _hang(*_: object) -> None:
    raise Hung(f"it took more than {PATIENCE_SECONDS} seconds")


@contextlib.contextmanager
def in_time() -> Iterator[None]:
    signal.setitimer(signal.ITIMER_REAL, PATIENCE_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def try_one(reader: Reader, content: bytes, folder: Path) -> str:
    """What became of one input; anything but an acceptance or a MemboundError comes out as it is."""
    path = folder / f"input{reader.suffix}"
    for left_over in set(folder.iterdir()) - {path}:
        shutil.rmtree(left_over) if left_over.is_dir() else left_over.unlink()
    path.write_bytes(content)
    try:
        with in_time():
            reader.read(path)
    except MemboundError as error:
        said = str(error)
        assert "\n" not in said, f"not one line: {said[:LINE]!r}"
        assert len(said) <= LINE + 2 * len(str(path)), f"not short: {said[:LINE]!r}"
        return type(error).__name__
    return "accepted"


def fuzz(name: str, options: argparse.Namespace) -> Counter[str]:
    """The outcomes of one reader, until its time is over or its count is reached."""
    outcomes: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="membound-fuzz-", dir=SCRATCH) as scratch:
        folder = Path(scratch)
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        reader = READERS[name]()
        for content in reader.sound:
            assert try_one(reader, content, folder) == "accepted", f"a sound {name} is refused"
        limit_memory()
        until = time.process_time() + options.seconds
        index = options.first
        while time.process_time() < until and (
            options.count is None or index < options.first + options.count
        ):
            content = reader.damaged(random.Random(f"{options.seed} {name} {index}"))
            try:
                outcomes[try_one(reader, content, folder)] += 1
            except BaseException:
                saved = Path(f"fuzz-failure-{name}-{index}")
                saved.write_bytes(content)
                print(
                    f"input {index} of seed {options.seed} failed in {name}: saved as {saved}",
                    file=sys.stderr,
                )
                raise
            index += 1
    return outcomes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=10.0, help="of processor time, for each reader")
    parser.add_argument("--count", type=int, help="at most so many inputs for each reader")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--readers", default=",".join(READERS), help="names, with commas between them")
    parser.add_argument("--out", help="a JSON file for the outcomes")
    options = parser.parse_args()
    warnings.simplefilter("error")  # a warning about damaged input is a finding, too
    signal.signal(signal.SIGALRM, _hang)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    sanitizers = ["address", "undefined"] if "ASAN_OPTIONS" in os.environ else []
    about = {"seed": options.seed, "seconds": options.seconds, "sanitizers": sanitizers, "failures": 0}
    found = {}
    for name in options.readers.split(","):
        outcomes = fuzz(name, options)
        found[name] = {"inputs": outcomes.total(), "outcomes": dict(outcomes.most_common())}
        told = ", ".join(f"{count:,} {outcome}" for outcome, count in outcomes.most_common())
        print(f"{name:12} {outcomes.total():9,} inputs: {told}", flush=True)
        grown = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
        # The address sanitizer keeps what was freed for a while.
        assert grown < RESIDENT or sanitizers, f"the readers took {grown:,} bytes of memory"
        if options.out:
            record(options.out, {**about, "grown_bytes": grown, "readers": found})
    print(f"none failed; {grown / 2**20:.0f} MiB of memory")


if __name__ == "__main__":
    main()
