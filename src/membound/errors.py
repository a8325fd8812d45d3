"""What can go wrong for a user: each message says what was found, what is allowed and what to do."""


class MemboundError(Exception):
    """The base of every error that membound raises on purpose; commands print it in one line."""


class RuleError(MemboundError):
    """A regularization rule that cannot be applied to this model and optimizer."""


class DataError(MemboundError):
    """A data set that is missing, malformed or not understood."""


class WeightsError(MemboundError):
    """A file of weights that is malformed or does not fit the network."""


class TrainingError(MemboundError):
    """Training that cannot go on: a non-finite loss or weight, a run directory that does not match."""


class Diverged(TrainingError):
    """Training whose loss or weights are no longer finite, or whose loss has exploded."""


class ModelError(MemboundError):
    """A network that cannot be captured, stored or run; `rule` is the rule of docs/FORMAT.md that a file breaks."""

    rule: int | None = None
