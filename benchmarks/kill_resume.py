"""A training run killed with SIGKILL at 20 random moments and resumed each time: are its weights the same bits?

python benchmarks/kill_resume.py --kills 20 --out results/kill-resume.json
"""

import argparse
import sys
import tempfile
from pathlib import Path

from _record import ROOT, record

sys.path.insert(0, str(ROOT / "tests" / "train"))
from kills import COMMAND, kill_and_compare


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--iterations", type=int, default=1500)
    parser.add_argument("--out", default="results/kill-resume.json")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = kill_and_compare(Path(folder), options.kills, options.seed, options.iterations)
    print(result)
    record(
        options.out,
        result | {"run": " ".join(["membound", *COMMAND[3:], "--iterations", str(options.iterations)])},
    )


if __name__ == "__main__":
    main()
