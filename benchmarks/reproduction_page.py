"""docs/REPRODUCTION.md from the numbers in results/reproduce: nothing on that page is written by hand but this.

python benchmarks/reproduction_page.py
"""

import json
from typing import Any

from _record import ROOT

from membound.paper import FIGURES, figure
from membound.store.whole import replace_file

RESULTS, PAGE = ROOT / "results" / "reproduce", ROOT / "docs" / "REPRODUCTION.md"
LONG = 20  # rows of a table that is folded

HEAD = """# The paper's experiments, redone

*Memory Bounded Deep Convolutional Networks* (Collins and Kohli, 2014), figure by figure, from the library's own
parts.

```
membound reproduce all                       # on a GPU: minutes a figure; goes on where it was stopped
membound reproduce thresholding --quick      # small, to see it work on a CPU
membound reproduce thresholding --draw       # only the pictures, from the numbers that are there
membound data cifar10                        # where to get the data; MNIST is in a checkout
```

Numbers and pictures go to `reproduced/` (`--out`), trained networks to `reproduced/networks` (`--run-dir`): what
was trained is never trained again, whatever figure asks for it, unless something about it has changed. `--ray
ADDRESS` trains on a cluster.

Tracks. **paper** is the paper's protocol: Caffe's solver, network, mean image and iterations to the letter (5,000
of batch 100 for CIFAR-10-quick, 10,000 of batch 64 for LeNet), counts imposed from the first step on. **ours** has
the same network, images and number of iterations, no augmentation, but a learning rate that warms up and anneals
along a cosine, the mean of each channel instead of a mean image, and bounds that tighten along a cubic ramp, shared
out over layers by LAMP scores. **longer** is ours with more iterations, which are stated. Validation images (5,000
of the training images) choose; test images only report. Spreads are standard deviations over seeds.

What the paper leaves open was chosen so: projection every 100 iterations; 1,000 iterations for each candidate of
the greedy search, 800 at the solver's first learning rate and 200 at a tenth of it, each from the last winner;
momentum of zeroed weights left alone; scores averaged in ensembles (probabilities are reported beside them);
weights below 0.001 set to zero after training with the l1 subgradient, which by itself leaves none at zero.
"""


def main() -> None:
    replace_file(PAGE, [make_page().encode()])


def make_page() -> str:
    """The page; figures that were not made are listed at its end."""
    parts, missing = [HEAD], []
    for name in FIGURES:
        path = RESULTS / f"{name}.json"
        if path.exists():
            parts.append(section(name, json.loads(path.read_text())))
        else:
            missing.append(name)
    if missing:
        parts.append(
            "## Not measured yet\n\nThe commands are there, but their full runs were not made: "
            + ", ".join(f"`membound reproduce {name}`" for name in missing)
            + ".\n"
        )
    return "\n".join(parts)


def section(name: str, document: dict[str, Any]) -> str:
    module = figure(name)
    title, _, about = (module.__doc__ or "").partition("\n")
    hardware = document["hardware"]
    trained = document.get("trained")
    time = (
        f"{document['seconds']:.0f} s"
        if trained is None
        else f"{trained} networks trained in {document['seconds']:.0f} s"
    )
    made = f"{hardware.get('gpu') or hardware['cpu']}, {time}, {document['date'][:10]}"
    lines = [
        f"## {name}",
        "",
        title,
        *about.rstrip().splitlines(),
        "",
        f"![{name}](../results/reproduce/{name}.svg)",
        "",
        f"`{document['command']}` ({made}; [numbers](../results/reproduce/{name}.json))",
        "",
        "| claim | | measured |",
        "|---|---|---|",
    ]
    for each in document["claims"]:
        mark = {True: "holds", False: "**does not hold**", None: "not measured"}[each["holds"]]
        lines.append(f"| {each['claim']} | {mark} | {each['detail']} |")
    table = markdown(module.table(document["numbers"]))
    if len(table) > LONG:
        table = ["<details><summary>All numbers</summary>", "", *table, "", "</details>"]
    return "\n".join([*lines, "", *table, ""])


def markdown(rows: list[list[str]]) -> list[str]:
    head, *rest = [f"| {' | '.join(row)} |" for row in rows]
    return [head, "|" + "---|" * len(rows[0]), *rest]


if __name__ == "__main__":
    main()
