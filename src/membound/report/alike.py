"""What two fits differ in besides what is compared, and whether the same examples judged them."""

from collections.abc import Mapping
from typing import Any

from membound.report.text import find_number, find_part, say_cut

Facts = Mapping[str, Any]
FITTED, IN_8_BITS = "fitted", "dense in 8 bits"
ALIKE = 1.01  # times the smallest budget that the largest may be, where budgets count as equal
TRAINING = (  # that should be alike
    "steps", "batch_size", "optimizer", "peak_lr", "momentum", "weight_decay", "every", "augment", "smoothing",
    "precision", "teacher", "temperature", "teacher_part",
)  # fmt: skip
TEACHING = ("teacher", "temperature", "teacher_part")


def find_unequal(ours: Facts, theirs: Facts) -> tuple[str, ...]:
    """What two fits differ in besides their method; what a record does not say is not claimed.

    That is: budgets by more than a percent, the network, its training data, values, how it was trained and taught, and
    whether dense in 8 bits took the place of what was fitted.

    >>> find_unequal({"limit": 3000, "training": {"steps": 9}}, {"limit": 2000, "training": {"steps": 5}})
    ('budgets 3,000 and 2,000', 'steps 9 and 5')
    >>> find_unequal({"is_dense_in_8_bits": True, "asked": {"values": "auto"}}, {"asked": {"values": "f16"}})
    ('file dense in 8 bits and fitted', 'values auto and f16')
    >>> find_unequal({"cut_after_training": 0.13}, {}), find_unequal(*[{"cut_after_training": 0.16}] * 2)
    (('weights cut after training 13 % and 0 %',), ())
    """
    limits = [find_number(net, "limit") or 0.0 for net in (ours, theirs)]
    found = [f"budgets {limits[0]:,.0f} and {limits[1]:,.0f}"] if max(limits) > ALIKE * min(limits) else []
    files = [_say_file(net) for net in (ours, theirs)]
    replaced = files != [FITTED, FITTED]
    if replaced:
        found.append(f"file {files[0]} and {files[1]}")
    cuts = [f"{100 * (find_number(net, 'cut_after_training') or 0.0):.0f} %" for net in (ours, theirs)]
    if (say_cut(ours) or say_cut(theirs)) and cuts[0] != cuts[1]:
        found.append(f"weights cut after training {cuts[0]} and {cuts[1]}")
    for part, keys in (
        ("asked", ("values",)),
        ("digests", ("network", "training_data")),
        ("training", TRAINING),
    ):
        mine, other = (find_part(net, part) for net in (ours, theirs))
        for key in keys:
            if replaced and key in TEACHING:  # nobody teaches dense
                continue
            if key in mine and key in other and mine[key] != other[key]:
                found.append(f"{key.replace('_', ' ')} {mine[key]} and {other[key]}")
    return tuple(found)


def say_other_tests(ours: Facts, theirs: Facts) -> str | None:
    """What two networks were judged on, where that is not the same: then their scores cannot be compared.

    >>> say_other_tests({"images": 40, "accuracy_on": "test"}, {"images": 9, "accuracy_on": "test"})
    '40 test images and 9 test images'
    >>> nets = [{"images": 40, "accuracy_on": "test", "digests": {"test_data": each}} for each in ("1a", "2b")]
    >>> say_other_tests(*nets), say_other_tests(nets[0], {"images": 40, "accuracy_on": "test"})
    ('other test images, 40 each (digests 1a and 2b)', None)
    """
    counts = [(net.get("images"), net.get("accuracy_on")) for net in (ours, theirs)]
    if counts[0] != counts[1]:
        return " and ".join(f"{images} {on} images" for images, on in counts)
    first, second = (find_part(net, "digests").get("test_data") for net in (ours, theirs))
    if first is None or second is None or first == second:
        return None
    images, on = counts[0]
    return f"other {on} images, {images} each (digests {first} and {second})"


def _say_file(net: Facts) -> str:
    """Whether it is what was fitted, with every seed.

    >>> _say_file({"seeds": {"seeds": [3, 4, 5], "is_dense_in_8_bits": [True, False, True]}})
    'dense in 8 bits with seeds 3, 5'
    """
    seeds = find_part(net, "seeds")
    taken = seeds.get("is_dense_in_8_bits") or [bool(net.get("is_dense_in_8_bits"))]
    if not any(taken):
        return FITTED
    if all(taken):
        return IN_8_BITS
    which = [str(seed) for seed, is_taken in zip(seeds.get("seeds") or (), taken, strict=False) if is_taken]
    return f"{IN_8_BITS} with {'seeds' if len(which) > 1 else 'seed'} {', '.join(which)}"
