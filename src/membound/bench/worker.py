"""One contender in a process of its own: `python -m membound.bench.worker JSON`.

It answers each line on its standard input with a line of JSON: first its loading, then `n` timed runs for every n.
What libraries print goes to the standard error.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from membound.bench.contenders import CONTENDERS, Files, Run
from membound.machine import reset_peak, resident_bytes
from membound.run.common import give_back

WARM_UP = 3
Clock = Callable[[], float]
CLOCKS: dict[str, Clock] = {"wall": time.perf_counter, "processor": time.process_time}


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    about = json.loads(sys.argv[1])
    with np.load(about["input"], allow_pickle=False) as given:
        x = [given[name] for name in given.files]
    began = time.perf_counter()
    load = CONTENDERS[about["contender"]]()
    imported = time.perf_counter() - began
    give_back()
    baseline = resident_bytes()
    reset_peak()
    began = time.perf_counter()
    files = Files(**{name: Path(path) for name, path in about["files"].items()})
    loaded = load(files, about["threads"], len(x[0]))
    ready = time.perf_counter() - began
    for _ in range(WARM_UP):
        output = loaded.run(x)
    whole = np.concatenate([each.reshape(len(each), -1) for each in output], 1)
    np.save(about["output"], whole, allow_pickle=False)
    facts: dict[str, Any] = {
        "precision": loaded.precision,
        "import_ms": 1e3 * imported,
        "load_ms": 1e3 * ready,
        "imported_bytes": baseline,  # Python, numpy and the runtime, before a network is there
        "process_bytes": resident_bytes(),  # all of it
    }
    for key, now in (("resident_bytes", facts["process_bytes"]), ("peak_bytes", resident_bytes("VmHWM"))):
        facts[key] = None if now is None or baseline is None else max(now - baseline, 0)
    answers.write(json.dumps(facts) + "\n")
    for line in sys.stdin:
        answers.write(json.dumps(timed(loaded.run, x, int(line), CLOCKS[about["clock"]])) + "\n")


def timed(run: Run, x: Any, runs: int, clock: Clock) -> list[float]:
    """Milliseconds of each run, after one that is not counted."""
    run(x)
    found = []
    for _ in range(runs):
        began = clock()
        run(x)
        found.append(1e3 * (clock() - began))
    return found


if __name__ == "__main__":
    main()
