"""A network of the zoo and its data as a problem of the search."""

import membound as mb
from membound.data import validation_split
from membound.data.augment import NONE
from membound.search.bound import Ramp
from membound.search.problem import Data, Fresh, Problem, Target, Training, bounded_weights, fine_tuned
from membound.train.preprocessing import preprocess_for, solver_of
from membound.train.recipe import Recipe, annealed


def zoo_problem(
    net: str,
    data: str,
    *,
    steps: int,
    every: int,
    kind: str = "file",
    mean: str | None = "channel",
    batch_size: int | None = None,
    ramp: Ramp | None = None,
    recipe: Recipe | None = None,
    validation: int | None = None,
    candidate_steps: int = 1000,
) -> Problem:
    """Final networks see all training images; with `validation`, candidates do not see so many of them."""
    images = mb.data.load(data)
    part, held_out = (
        (images.train, None) if validation is None else validation_split(images.train, validation)
    )
    factory = getattr(mb.zoo, net)
    model = factory()
    recipe = recipe or annealed(solver_of(model), steps, batch_size)
    training = Training(recipe, fine_tuned(recipe, candidate_steps), every, ramp or Ramp(), augment=NONE)
    preprocess = preprocess_for(model, part, mean)
    splits = Data(images.train, part, held_out, images.test, preprocess, images.classes)
    return Problem(Fresh(factory), splits, training, Target(kind), bounded_weights(model))
