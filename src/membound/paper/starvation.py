"""Figure 'data-starvation': quick on subsamples of CIFAR-10, dense and sparse, training and test accuracy.

The paper: simpler models are ahead 'in some cases' when data is scarce; with more data training accuracy falls and test
accuracy rises, less so for simple models.
"""

from typing import Any

from membound.paper.claims import above, below, best_above, claim, less, show, spread
from membound.paper.lab import Lab, name_track
from membound.paper.layers import greedy_counts
from membound.search.jobs import Job

SIZES = (1_000, 2_500, 5_000, 10_000, 25_000, 50_000)
TARGETS = (28_249, 14_557)  # nonzeros of the sparse networks


def run(lab: Lab) -> dict[str, Any]:
    """Every size, dense and two sparsities, on both tracks; on the paper's with the counts of the greedy search."""
    seeds = lab.size.seeds(3)
    searches = lab.study("quick", "paper").search(list(lab.size.seeds(3)))
    rows = []
    for track in ("paper", "ours"):
        study = lab.study("quick", track)
        whole = len(study.problem.data.train)
        jobs: list[Job] = []
        for size in lab.size.some([size for size in SIZES if size <= whole] or [whole // 2, whole]):
            images = None if size == whole else size
            for seed, rounds in zip(seeds, searches, strict=True):
                more: Any = {"images": images, "also": ("train",)}
                jobs.append(study.dense(seed, **more, about={"size": size, "model": "dense"}))
                for target in TARGETS:
                    about = {"size": size, "model": f"{target:,} nonzeros"}
                    if track == "paper":
                        jobs.append(study.counted(greedy_counts(rounds, target), seed, **more, about=about))
                    else:
                        jobs.append(study.limited(target, seed, **more, about=about))
        for facts in study.do(jobs):
            rows.append(
                {
                    "track": track, **facts["job"]["about"], "seed": facts["job"]["seed"],
                    "train": facts.get("train_accuracy"), "test": facts["accuracy"], "nonzeros": facts["nonzeros"],
                }
            )  # fmt: skip
    return {"rows": rows}


def means(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Over seeds, by track, model and size."""
    rows = []
    keys = dict.fromkeys((row["track"], row["model"], row["size"]) for row in result["rows"])
    for track, model, size in keys:
        mine = [
            row
            for row in result["rows"]
            if (row["track"], row["model"], row["size"]) == (track, model, size) and row["test"] is not None
        ]
        if mine:
            rows.append(
                {
                    "track": track, "model": model, "size": size, "train": spread([row["train"] for row in mine]),
                    "test": spread([row["test"] for row in mine]),
                }
            )  # fmt: skip
    return rows


def claims(result: dict[str, Any]) -> list[dict[str, Any]]:
    rows = means(result)
    found = []
    for track in ("paper", "ours"):
        at = {(row["model"], row["size"]): row for row in rows if row["track"] == track}
        sizes = sorted({size for _, size in at})
        sparse = sorted({model for model, _ in at if model != "dense"})
        scarce = [size for size in sizes if size <= 10_000]
        cases = {
            (model, size): (at[model, size]["test"], at["dense", size]["test"])
            for model in sparse
            for size in scarce
            if (model, size) in at
        }
        if cases:
            (model, size), lead = best_above(cases)
            text = f"{name_track(track)}: with at most 10,000 images a sparse network is ahead in some cases"
            where = f"{model} on {size:,} images, one of {len(cases)} cases"
            found.append(claim(text, lead.gap > 0, f"at best {lead.gap:+.2f} points, {where}", lead))
        small, large = at["dense", sizes[0]], at["dense", sizes[-1]]
        fallen, risen = below(large["train"], small["train"]), above(large["test"], small["test"])
        train, test = -fallen.gap, risen.gap
        text = f"{name_track(track)}: with more data training accuracy falls and test accuracy rises"
        found.append(
            claim(
                text,
                train < 0 < test,
                f"dense, {sizes[0]:,} to {sizes[-1]:,}: {train:+.1f} and {test:+.1f}",
                fallen,
                risen,
            )
        )
        falls = {m: above(at[m, sizes[0]]["train"], at[m, sizes[-1]]["train"]) for m in ("dense", *sparse)}
        text = f"{name_track(track)}: training accuracy falls less for the sparse networks"
        detail = ", ".join(f"{model} {fall:.1f}" for model, (fall, *_) in falls.items())
        margins = [less(falls[model], falls["dense"]) for model in sparse]
        found.append(claim(text, all(margin.gap > 0 for margin in margins), detail, *margins))
    return found


def table(result: dict[str, Any]) -> list[list[str]]:
    rows = [["track", "model", "training images", "training accuracy", "test accuracy"]]
    return rows + [
        [row["track"], row["model"], f"{row['size']:,}", show(row["train"]), show(row["test"])]
        for row in means(result)
    ]
