"""A greedy fit killed with SIGKILL at 20 random moments and called again each time: is its file the same bytes?

python benchmarks/fit_kills.py --kills 20 --out results/fit-kills.json
"""

import argparse
import sys
import tempfile
from pathlib import Path

from _record import ROOT, record

sys.path.insert(0, str(ROOT / "tests" / "search"))
from fit_kills import kill_and_compare


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", default="results/fit-kills.json")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = kill_and_compare(Path(folder), options.kills, options.seed)
    print(result)
    record(options.out, result)


if __name__ == "__main__":
    main()
