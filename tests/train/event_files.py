"""What TensorBoard reads from a folder of event files."""

from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


def curves(folder: Path) -> dict[str, dict[int, float]]:
    """Every scalar by its tag: its value at each step, of which none may come twice."""
    events = EventAccumulator(str(folder))
    events.Reload()
    found = {}
    for tag in events.Tags()["scalars"]:
        points = events.Scalars(tag)
        found[tag] = {point.step: point.value for point in points}
        assert len(found[tag]) == len(points), tag
    return found
