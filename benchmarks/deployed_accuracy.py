"""Accuracy of model files through the deployed runtime, beside what torch said of the same networks.

python benchmarks/deployed_accuracy.py FOLDER --data cifar10 --torch results/frontier-quick.json --out results/X.json
"""

import json
import statistics
from pathlib import Path

from _record import arguments, record

import membound as mb
from membound.run.evaluation import evaluate_file, open_for_evaluation


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--data", default="cifar10")
    parser.add_argument("--torch", type=Path, help="the result whose rows have the same networks, by key")
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    data = mb.data.load(options.data)
    said = {}
    if options.torch is not None:
        for row in json.loads(options.torch.read_text())["rows"]:
            said[row.get("key") or f"t{row['trial']}-n{row['n']}"] = row.get("accuracy", row.get("scores"))
    rows = []
    for path in sorted(options.folder.glob("*.safetensors")):
        facts = evaluate_file(open_for_evaluation(path), data)
        kept = ("accuracy", "errors", "images", "nonzeros", "file_bytes")
        rows.append({"key": path.stem, **{name: facts[name] for name in kept}, "torch": said.get(path.stem)})
        print(rows[-1], flush=True)
    groups: dict[str, list[dict]] = {}
    for row in rows:
        first, _, last = row["key"].rpartition("-")
        groups.setdefault(last if last.startswith("n") else first, []).append(row)
    summary = [
        {
            "group": group,
            "networks": len(found),
            "accuracy": statistics.mean(row["accuracy"] for row in found),
            "std": statistics.stdev(row["accuracy"] for row in found) if len(found) > 1 else 0.0,
            "largest_file_bytes": max(row["file_bytes"] for row in found),
        }
        for group, found in sorted(groups.items())
    ]
    for line in summary:
        print(line)
    record(options.out, {"data": options.data, "summary": summary, "rows": rows})


if __name__ == "__main__":
    main()
