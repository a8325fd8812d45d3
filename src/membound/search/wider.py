"""Values with more bits, where few of them cost too much: the same limits, and the better one of the two networks."""

from dataclasses import replace

from membound.search.deployed import Fitted
from membound.search.place import Watch
from membound.search.problem import AUTO, Problem
from membound.search.scoring import is_below, score_on_training
from membound.train.parallel import World

FEW = {AUTO: "few bits", "f16": "16 bits"}
WIDER = {AUTO: "f16", "f16": "f32"}  # where these cost too much


def widened(problem: Problem) -> Problem:
    """The same problem with wider values."""
    return problem.changed(target=replace(problem.target, values=WIDER[problem.target.values]))


def better_of(narrow: Fitted, wider: Fitted | None, problem: Problem, world: World, watch: Watch) -> Fitted:
    """The one with wider values, unless it has learned less: fewer weights fit beside these."""
    if wider is None:
        return narrow
    stored = [each.files.stored(each.model.state_dict()) for each in (narrow, wider)]
    ours, theirs = score_on_training(stored, problem)
    if not world.agree(is_below(theirs, ours)):
        lost = (
            f"values in {wider.values}: fewer bits lost too much on training images, and so fewer weights fit"
        )
        return _noted(wider, lost)
    stay = f"values stay in {narrow.values}: in {wider.values}, where fewer weights fit, the network learned less"
    watch.say(stay)
    return _noted(narrow, stay)


def _noted(fitted: Fitted, note: str) -> Fitted:
    return replace(fitted, facts={**fitted.facts, "tried": [*fitted.facts["tried"], note]})
