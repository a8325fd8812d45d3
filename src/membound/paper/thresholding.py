"""Figure 'thresholding': quick with l2, thresholded at delta; and the same counts per layer imposed in training.

The paper: projection in training is far above thresholding at high sparsity.
"""

from typing import Any

from membound.paper.baselines import density_threshold, threshold_
from membound.paper.claims import above, claim, show, spread
from membound.paper.lab import Facts, Lab, Study, name_track

DENSITIES = (0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1)  # of all weights, which delta is set for
LOSSES = {"paper": 5.0, "ours": 2.0}  # that projection may have where thresholding loses 10 points


def run(lab: Lab) -> dict[str, Any]:
    """Dense networks, thresholded; the counts that result, imposed in training on both tracks."""
    paper, seeds = lab.study("quick", "paper"), lab.size.seeds(3)
    dense = paper.do([paper.dense(seed) for seed in seeds], weights=True)
    ours = lab.study("quick", "ours")
    ours_dense = ours.do([ours.dense(seed) for seed in seeds])
    points = [_threshold(paper, facts, density) for facts in dense for density in lab.size.some(DENSITIES, 3)]
    whole = [point for point in points if not point["emptied"]]
    for study in (paper, ours):
        found = study.do([study.counted(point["counts"], point["seed"]) for point in whole])
        for point, facts in zip(whole, found, strict=True):
            point[study.track] = facts["accuracy"]
    return {
        "dense": {
            "paper": spread([facts["accuracy"] for facts in dense]),
            "ours": spread([facts["accuracy"] for facts in ours_dense]),
        },
        "points": points,
        "iterations": paper.steps,
    }


def _threshold(study: Study, dense: Facts, density: float) -> dict[str, Any]:
    state = study.state(dense)
    delta = density_threshold(state, list(study.sizes), density)
    model = study.network(state)
    counts = threshold_(model, delta)
    return {
        "seed": dense["job"]["seed"],
        "density": density,
        "delta": delta,
        "counts": counts,
        "emptied": [name for name, count in counts.items() if count == 0],
        "thresholded": study.test(model),
    }


def means(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Over seeds, by density, from the densest."""
    rows = []
    for density in sorted({point["density"] for point in result["points"]}, reverse=True):
        mine = [point for point in result["points"] if point["density"] == density]
        row: dict[str, Any] = {"density": density, "delta": spread([point["delta"] for point in mine])}
        row["emptied"] = sorted({name for point in mine for name in point["emptied"]})
        for way in ("thresholded", "paper", "ours"):
            values = [point[way] for point in mine if point.get(way) is not None]
            row[way] = spread(values) if values else None
        rows.append(row)
    return rows


def claims(result: dict[str, Any]) -> list[dict[str, Any]]:
    rows, dense = means(result), result["dense"]
    found = []
    ten = next((r for r in rows if dense["paper"]["mean"] - r["thresholded"]["mean"] >= 10), rows[-1])
    lost = dense["paper"]["mean"] - ten["thresholded"]["mean"]
    for track, most in LOSSES.items():
        text = f"{name_track(track)}: where thresholding loses 10 points, projection in training loses at most {most:g}"
        if ten[track] is None:
            found.append(
                claim(text, None, "thresholding empties a layer there, and an empty layer cannot be trained")
            )
            continue
        mine = dense[track]["mean"] - ten[track]["mean"]
        margin = above(ten[track], dense[track], by=-most)
        detail = (
            f"at {ten['density']:.0%} of the weights thresholding loses {lost:.1f}, projection {mine:.1f}"
        )
        found.append(claim(text, mine <= most, detail, margin))
    for track in LOSSES:
        gains = {
            r["density"]: above(r[track], r["thresholded"])
            for r in rows
            if r[track] is not None and 0.3 <= r["density"] <= 0.6
        }
        if gains:
            text = f"{name_track(track)}: projection in training is above thresholding at every density from 30 to 60 %"
            detail = "by " + ", ".join(
                f"{gain:.1f} points at {density:.0%}" for density, (gain, *_) in gains.items()
            )
            found.append(claim(text, min(gain.gap for gain in gains.values()) > 0, detail, *gains.values()))
    return found


def table(result: dict[str, Any]) -> list[list[str]]:
    named = [f"projection, {name_track(track)}" for track in LOSSES]
    rows = [["weights kept", "delta", "thresholded", *named, "emptied"]]
    for row in means(result):
        cells = [show(row[way]) if row[way] else "-" for way in ("thresholded", *LOSSES)]
        rows.append(
            [f"{row['density']:.0%}", f"{row['delta']['mean']:.4f}", *cells, ", ".join(row["emptied"])]
        )
    dense = result["dense"]
    return [*rows, ["100%", "0", show(dense["paper"]), *(show(dense[track]) for track in LOSSES), ""]]
