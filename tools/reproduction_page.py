"""docs/REPRODUCTION.md from the numbers in results/reproduce: nothing on that page is written by hand but this.

python tools/reproduction_page.py
"""

import json
from pathlib import Path
from typing import Any

from membound.paper import FIGURES, LARGE, figure
from membound.store.whole import replace_file

ROOT = Path(__file__).resolve().parents[1]
RESULTS, PAGE = ROOT / "results" / "reproduce", ROOT / "docs" / "REPRODUCTION.md"
LONG = 20  # rows of a table that is folded

HEAD = """# The paper's experiments, redone

*Memory Bounded Deep Convolutional Networks* (Collins and Kohli, 2014), figure by figure, with this library.

```
pip install -e '.[train,paper]'              # in a clone: the wheel leaves the experiments out
membound reproduce all                       # on a GPU: minutes per figure; resumes where it was stopped
membound reproduce memory --quick --net lenet  # to see it work: a minute or two on two idle cores, no download
membound reproduce frontier --seeds 10       # as many seeds as you like, in any figure
membound reproduce memory --draw             # only the pictures, from the numbers that are there
membound data cifar10                        # where to get the data; MNIST is in a checkout
membound reproduce imagenet --data imagenet/ --init bvlc_alexnet.caffemodel --skip-corrupt --cache decoded/
```

## How to run it

- **Data.** MNIST is in a checkout. `frontier`, and `memory`, `layers` and `partial` with `--net lenet`, need nothing
  else. All other figures need CIFAR-10.
- **`--quick`** trains little of everything. It shows that a figure works, and claims nothing (in JSON, `claims` is
  empty).
- **`--seeds N`** trains every network with the seeds 0 to N - 1. Without it, most figures use 3
  seeds, `frontier` 5, `optimization` 10 and `imagenet` 1; with `--quick`, at most 2.
- **Cost.** Before training, the command says how many networks the figure took when it was made in full, how long, and
  on which machine (not with `--quick`). Then it says for each group of networks how many there are, how many steps each
  takes, and about how long they will take here. The time of a greedy search is not known in advance. `--steps N` cuts
  every training to N steps: the result is marked as shortened in JSON and picture, and claims nothing.
- **Output.** Numbers and pictures go to `reproduced/` (`--out`), trained networks to `reproduced/networks`
  (`--run-dir`). What was trained for a figure is not trained again unless something about it has changed.
  `--ray ADDRESS` trains on a cluster.
- **`imagenet`** is made only if you name it, from a folder with `train/` and `val/`, or with folders of classes, from
  which test images are held out. It brings a dense AlexNet (`--init`, or trained here) under the paper's counts in
  stages, step by step. A step is accepted when validation accuracy is within half a point of dense.

## How to read it

**Tracks.** A figure is made in up to three ways:

| track | what it is |
|---|---|
| paper | the paper's protocol: Caffe's solver, network, mean image and iterations (5,000 of batch 100 for CIFAR-10-quick, 10,000 of batch 64 for LeNet); counts of weights imposed from the first step on |
| ours | the same network, images and iterations, no augmentation; but a learning rate that warms up and anneals along a cosine, the mean of each channel in place of a mean image, and bounds that tighten along a cubic ramp and are shared out over layers by LAMP scores |
| longer | ours with more iterations, which are stated |

On our track, CIFAR-10-quick's peak rate (0.002) and ramp (from a tenth to eight tenths of the training) were chosen
on validation images, in trials that were not kept. Bounds on single layers (`partial`, `optimization`) tighten until
six tenths of the training. Validation images (5,000 of the training images) choose; test images only report.

**Numbers.** The ± of an accuracy is its standard deviation (SD) over seeds, and so are the error bars in pictures
([terms](MEASURED.md#how-to-read-the-numbers)).

**Verdicts.** A claim that one mean is ahead of another is judged by the lead and its 95 % confidence interval:

| verdict | when |
|---|---|
| holds | the interval lies above 0 |
| **does not hold** | the interval lies below 0 |
| too few seeds to tell | the interval includes 0, with fewer than 5 seeds |
| within the spread | the interval includes 0, with 5 seeds or more: the data show neither a difference nor equality; any lead inside the interval is possible |
| not measured | there are no numbers for it |

The interval of a lead d of n1 seeds with SD s1 over n2 seeds with SD s2 is Welch's

    d ± t(f) sqrt(s1^2 / n1 + s2^2 / n2)

where t is the 97.5 % quantile of Student's t and f Welch's degrees of freedom, rounded down. Against a fixed number,
such as a published one, it is d ± t(n - 1) s / sqrt(n): 2.5 SDs with 3 seeds, 1.2 with 5, 0.7 with 10. Student's t is
used because the SD itself is estimated from few seeds. Judging by the SD alone would call a lead certain too often:
with 3 seeds, a lead of two SDs is still inside the 95 % interval. A claim with several parts is as good as its weakest
part. The best of several cases is ahead by chance more often than one case is. So a claim that any of k cases would
prove (a sparse network is ahead "in some cases", an ensemble of any size is) holds only if one of their intervals of
the level 1 - 0.05/k lies above 0 (Bonferroni), and does not hold if all of their 95 % intervals lie below 0. Claims
about counts and bytes have no interval, and neither have results of a single seed: there, the means alone decide.

`fit` and `compare` use [the same 95 % interval, paired by seed](RESEARCH.md#several-seeds), which is narrower where
seeds agree. Published numbers have no seeds to pair, and many claims here combine several means, so these are not
paired. The one exception is the changes of accuracy in the claims of `memory`: there, the small network of each seed
was made from the dense one that it is compared with. No verdict follows from them. `fit` says "too few seeds to tell"
of two seeds only.

**What the paper leaves open** was chosen as follows:

- projection every 100 iterations;
- each candidate of the greedy search starts from the last winner and trains for about an epoch (LeNet 1,000,
  CIFAR-10-quick 500 iterations), four fifths of it at the solver's first learning rate and the rest at a tenth of it;
- the momentum of zeroed weights is left alone;
- ensembles average scores (probabilities are reported beside them);
- after training with the l1 subgradient, weights below 0.001 are set to zero, because that method alone leaves none
  at zero.
"""  # noqa: E501

NOTES = {  # where we differ from the paper, and why
    "memory": """A winner of the search was trained again in every round: CIFAR-10-quick's last winners have had
23,000 to 24,500 iterations after the dense network's 5,000. They are ahead of their dense networks, and far ahead of
our track, whose networks have had 5,000 in all. LeNet's winners are behind both. The `layers` figure compares counts
at equal iterations.""",
    "layers": """In the paper, conv1 and conv2 are relatively untouched; here they are not. On CIFAR-10-quick, our
searches keep the largest parts of conv1 and fc2, the smallest layers, and the smallest parts of conv2 and fc1. What a
search cuts first differs from seed to seed. On the paper's track, where counts are imposed from the first step, the
search's counts for CIFAR-10-quick have the higher mean only where few weights are left. The search stops at the first
round within a number of nonzeros, and so has up to 7 % fewer than the uniform counts beside it.""",
    "partial": """A method is compared with the best point of another that has at most as many weights. Near dense,
the mean of l0 is ahead, but in three of four cases three seeds cannot decide. In the middle, the two are comparable
for LeNet, and l0 is ahead for CIFAR-10-quick, by more than 2 points. Whether l1 yields very sparse models depends on
the strengths that are tried: ours include l1 models as sparse as l0's, which are less accurate by 0.2 to 8 points. Of
the three networks of CIFAR-10-quick with the strongest shrinkage on conv1, two have lost all of its weights. LeNet's
panels (147 networks, 178 s) and CIFAR-10-quick's (129 networks, 231 s) were made one after the other, and fewer
strengths of l1 were tried for the latter.""",
    "frontier": """The dense networks, five seeds, are themselves a row of the table, and the mean of their scores is
what the sparse ones learn from beside the labels, at temperature 3. That was chosen on 10,000 validation images with
trainings of a quarter of the length and three seeds ([numbers](../results/distillation.json)): at 3,160 nonzeros the
error is 1.02 ± 0.04 % against 1.10 ± 0.08 % with labels alone, which three seeds cannot tell apart, and at 6,580 it
is 0.94 against 0.93 %. At higher temperatures trainings diverged. At 1,500 weights, sparse variational dropout has
fewer errors than we have.""",
    "ensembles": """The paper's gain of 1.55 points does not come from its protocol as we read it: members that are
trained from fresh weights with the search's counts imposed for 5,000 iterations lose more by sparsity than averaging
gains. The paper does not say how its members were trained. Our track differs in schedule, allocation and images
(every member sees all of them). With as many iterations as the paper's solver has, its mean is above the paper's
best, but three seeds cannot decide. As in the paper, the best of five n is chosen by test accuracy. With 20,000
iterations, bagged resamples and the same nonzeros in all, the ensembles of `fit` have 77.45, 77.62, 79.33, 80.04 and
80.22 ± 0.28 % for n = 1 to 5 ([numbers](../results/ensembles.json), three trials, in torch; through the runtime, [a
few images](MEASURED.md#ensembles) differ); the longer track of this command, on all images, was not run in full.""",
    "imagenet": """ImageNet itself was not at hand: these are Imagenette's ten classes, 160 pixels, enlarged to 256
and cropped to 227, for which AlexNet's fully connected layers are far too large, so that thresholding costs little.
The sparse networks were trained three to four times as long as the dense ones, stage by stage, which is part of why
they are ahead: dense ones that are trained for 2,000 more steps, on all images, reach 79.89 ± 0.45 %
([numbers](../results/pretrained-alexnet.json)). There, with all layers bounded and values in 16 bits, files of 1/35.8
of the dense network's 227,639,144 bytes are within the spread of those (+0.27 ± 0.32 points, half the 95 % interval).
Three processes trained the three seeds side by side; the time is that of the slowest.""",
    "starvation": """With 1,000 images, all networks fit the training images. With more images, the sparse ones fit
them less well than the dense one, so their training accuracy falls more, not less.""",
}


def main() -> None:
    replace_file(PAGE, [make_page().encode()])


def make_page() -> str:
    """The page; figures that were not made are listed at its end."""
    paths = {name: RESULTS / f"{name}.json" for name in (*FIGURES, *LARGE)}
    documents = {name: json.loads(path.read_text()) for name, path in paths.items() if path.exists()}
    missing = [name for name in FIGURES if name not in documents]
    parts = [HEAD, *(section(name, document) for name, document in documents.items())]
    seconds = [document["seconds"] for name, document in documents.items() if name in FIGURES]
    parts.insert(
        1,
        f"The {len(seconds)} figures below took {sum(seconds) / 60:.0f} minutes on one GPU, without `imagenet`.\n",
    )
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
    for each in module.claims(document["numbers"]):
        text = each["claim"]
        mark = {"does not hold": "**does not hold**"}.get(each["verdict"], each["verdict"])
        lines.append(f"| {text} | {mark} | {each['detail']} |")
    table = markdown(module.table(document["numbers"]))
    if len(table) > LONG:
        table = ["<details><summary>All numbers</summary>", "", *table, "", "</details>"]
    notes = [NOTES[name], ""] if name in NOTES else []
    return "\n".join([*lines, "", *notes, *table, ""])


def markdown(rows: list[list[str]]) -> list[str]:
    head, *rest = [f"| {' | '.join(row)} |" for row in rows]
    return [head, "|" + "---|" * len(rows[0]), *rest]


if __name__ == "__main__":
    main()
