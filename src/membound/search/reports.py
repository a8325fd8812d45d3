"""The page of networks that came of several calls of `fit`: of those that can stand beside each other."""

import os
from collections.abc import Mapping, Sequence

from membound.errors import MemboundError
from membound.report.alike import say_other_tests
from membound.search.deployed import Fitted
from membound.search.summary import describe_final, write_page


def write_report(
    results: Fitted | Sequence[Fitted] | Mapping[str, Fitted],
    path: str | os.PathLike[str],
    *,
    network: str = "",
    data: str = "",
) -> None:
    """Write one HTML page that loads nothing: accuracy against size, layers and curves of one network or several.

    `results` are what `fit` gives, of one call or of several on the same data; the dense network is the first one's.
    A dict gives each a name, such as {"by Taylor scores": a, "by magnitude": b}. `network` and `data` are names for the
    title.
    """
    kind = type(results).__name__
    names = [str(name) for name in results] if isinstance(results, Mapping) else None
    if isinstance(results, Mapping):
        results = list(results.values())
    found = (
        [results] if isinstance(results, Fitted) else list(results) if isinstance(results, Sequence) else []
    )
    wanted = "give a Fitted, a list of them, or a dict such as {'mine': fitted}"
    if not found and isinstance(results, Sequence):
        raise MemboundError(f"there is no network to report on, the {kind} is empty: {wanted}")
    if not found or not all(isinstance(each, Fitted) for each in found):
        kinds = ", ".join(sorted({type(each).__name__ for each in found})) or type(results).__name__
        raise MemboundError(f"a report is of what fit gives, not of {kinds}: {wanted}")
    kinds_of_bound = {each.facts["asked"].get("kind", "file") for each in found}
    if len(kinds_of_bound) > 1:
        bounds = " and ".join(sorted(kinds_of_bound))
        raise MemboundError(f"these networks have bounds on {bounds}: write a report for each kind")
    judged = [describe_final(each) for each in found]
    for other in judged[1:]:
        if shown := say_other_tests(judged[0], other):
            raise MemboundError(
                f"these networks were judged on {shown}: give all fits the same test_data, or write a report for each"
            )
    write_page(found, path, network=network, data=data, names=names)
