"""What a network's outputs mean: probabilities of classes that have names, or values."""

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
FEW = 10  # outputs that are all listed, in their order


def to_probabilities(output: Floats) -> npt.NDArray[np.float64] | None:
    """The softmax of scores [N, classes]; outputs that are probabilities already stay.

    None where each number stands for itself: between 0 and 1, and with another sum than 1.

    >>> to_probabilities(np.float32([[0.0, 0.0]])), to_probabilities(np.float32([[0.25, 0.75]]))
    (array([[0.5, 0.5]]), array([[0.25, 0.75]]))
    >>> to_probabilities(np.float32([[0.9, 0.8]])) is None
    True
    """
    scores = output.astype(np.float64)
    if scores.size and scores.min() >= 0 and scores.max() <= 1 and np.any(scores):
        return scores if np.allclose(scores.sum(1), 1, atol=0.02) else None
    powers = np.exp(scores - scores.max(1, keepdims=True))
    found: npt.NDArray[np.float64] = powers / powers.sum(1, keepdims=True)
    return found


def best_classes(names: list[str], output: Floats, count: int = 5) -> list[list[dict[str, Any]]]:
    """The best classes of each example, with probability and score; outputs without a name are called by their number.

    >>> best_classes(["cat", "dog"], np.float32([[0.0, 0.0], [-1.0, 3.0]]), count=1)[1]
    [{'class': 'dog', 'probability': 0.982014, 'score': 3.0}]
    """
    named = [*names, *(f"output {number}" for number in range(len(names), output.shape[1]))]
    found = to_probabilities(output)
    rows = []
    for number, scores in enumerate(output):
        best = np.argsort(-scores, kind="stable")[:count]
        rows.append(
            [
                {"class": named[i]}
                | ({} if found is None else {"probability": round(float(found[number, i]), 6)})
                | {"score": float(scores[i])}
                for i in best
            ]
        )
    return rows


def largest_values(output: Floats, count: int = 5) -> list[list[dict[str, Any]]]:
    """Of outputs without names that are too many to list: the largest, by their numbers."""
    best = np.argsort(-output, axis=1, kind="stable")[:, :count]
    return [
        [{"output": int(i), "value": float(values[i])} for i in row]
        for row, values in zip(best, output, strict=True)
    ]
