"""`make demo` in a fresh clone of this commit: how long the installation takes, and how long the demo itself.

python benchmarks/fresh_demo.py --out results/fresh-demo.json

Packages come from wherever pip is set to: a mirror nearby makes the installation look shorter than it is elsewhere.
"""

import os
import subprocess
import tempfile
import time
from pathlib import Path

from _record import ROOT, arguments, record
from demo_seeds import processor_seconds


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--out", default="results/fresh-demo.json")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder) / "membound"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        install = timed(clone, ".venv/trainers", ".venv/installed")
        demo = timed(clone, "demo")
        said = demo.pop("output").splitlines()
    install.pop("output")
    total = round(install["seconds"] + demo["seconds"], 1)
    record(options.out, {"seconds": total, "install": install, "demo": demo, "last_lines": said[-5:]})


def timed(clone: Path, *targets: str) -> dict:
    """What passes while make is at work, and what it works: the load says how much else there is."""
    load, begun, before = os.getloadavg()[0], time.monotonic(), processor_seconds()
    done = subprocess.run(["make", *targets], cwd=clone, check=True, capture_output=True, text=True)
    return {
        "seconds": round(time.monotonic() - begun, 1),
        "processor_seconds": round(processor_seconds() - before, 1),
        "load_before": round(load, 2),
        "load_after": round(os.getloadavg()[0], 2),
        "output": done.stdout,
    }


if __name__ == "__main__":
    main()
