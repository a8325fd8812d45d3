"""The safetensors container: a header of JSON that says where each tensor is, then the tensors' bytes.

The `safetensors` library reads what is written here; what is read here must also keep the rules of docs/FORMAT.md
that the library does not ask for.
"""

import json
import math
import operator
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from membound.store.graph import Shape
from membound.store.rules import MAX_HEADER, MAX_TENSORS, is_int, is_shape, refuse, show

Array = npt.NDArray[Any]
ALIGNMENT = 64
METADATA = "__metadata__"
DTYPES: dict[str, np.dtype[Any]] = {
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "U32": np.dtype("<u4"),
    "U16": np.dtype("<u2"),
    "U8": np.dtype("u1"),
}
_NAMES = {dtype: name for name, dtype in DTYPES.items()}
_FIELDS = {"dtype", "shape", "data_offsets"}


@dataclass(frozen=True, eq=False)
class Container:
    """Named arrays, and the text under `__metadata__["membound"]`."""

    arrays: dict[str, Array]
    text: str
    header_bytes: int  # up to where the data starts
    file_bytes: int


def parse(buffer: npt.NDArray[np.uint8]) -> Container:
    """The container in these bytes; its arrays are views onto them."""
    size = len(buffer)
    if size < 8:  # rule 1
        refuse(1, f"cut short, or not a model file: {_bytes(size)}, where its header alone has more")
    if buffer[:8].tobytes() == b"MBAPPNET":
        refuse(
            1,
            "this is a network for an app, written by export_cpp_file: use the .safetensors file it was made from",
        )
    length = int.from_bytes(buffer[:8].tobytes(), "little")
    if length > MAX_HEADER:  # rule 1
        refuse(
            1,
            f"not a model file, nor another safetensors file: its first 8 bytes would say that its header has "
            f"{_bytes(length)}, and at most {MAX_HEADER:,} are allowed",
        )
    if not 2 <= length <= size - 8:  # rule 1
        refuse(
            1,
            f"cut short, or not a model file: {_bytes(size)}, and a header of {_bytes(length)} does not fit in them"
            f"{_missing(8 + length - size, 'at least ')}",
        )
    start = 8 + length
    if start % ALIGNMENT:  # rule 2
        refuse(
            2,
            f"the data starts at byte {start}, which is not a multiple of {ALIGNMENT}: pad the header with spaces",
        )
    header = load_json(buffer[8:start].tobytes(), "the header")
    text = _metadata(header)
    if len(header) - 1 > MAX_TENSORS:  # rule 6
        refuse(6, f"there are {len(header) - 1} tensors: at most {MAX_TENSORS} are allowed")
    arrays, spans, missing = {}, [], _last_byte(header) - (size - start)
    for name, fields in header.items():
        if name != METADATA:
            dtype, shape, begin, end = _entry(name, fields, size - start, missing)
            arrays[name] = buffer[start + begin : start + end].view(dtype).reshape(shape)
            spans.append((begin, end))
    _check_tiling(spans, size - start)
    return Container(arrays, text, start, size)


def load_json(content: bytes | str, what: str) -> dict[str, Any]:
    """An object from JSON: strict about UTF-8, numbers and repeated keys."""
    try:
        text = content.decode("utf-8") if isinstance(content, bytes) else content
        found = _DECODER.decode(text)
    except (ValueError, RecursionError) as error:  # rule 3
        refuse(3, f"{what} is not JSON: {str(error)[:100]}")
    if not isinstance(found, dict) or not text.startswith("{"):  # rule 3
        refuse(3, f"{what} is not a JSON object that starts with a brace")
    return found


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):  # rule 4
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1) if len(names) < 1000 else "one of many"
        refuse(4, f"the key {show(twice)} is there more than once")
    return found


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is not allowed")


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_constant)


def _metadata(header: dict[str, Any]) -> str:
    metadata = header.get(METADATA)
    if not isinstance(metadata, dict) or not all(
        isinstance(value, str) for value in metadata.values()
    ):  # rule 5
        refuse(5, f"there is no {METADATA} of strings in the header: this is not a membound model")
    text = metadata.get("membound")
    if not isinstance(text, str):  # rule 5
        refuse(5, f'there is no "membound" in {METADATA}: these are weights without a network')
    return text


def _last_byte(header: Mapping[str, Any]) -> int:
    """Where the data ends, as the header has it; 0 where it does not say that."""
    ends = [fields.get("data_offsets") for fields in header.values() if isinstance(fields, dict)]
    pairs = [pair for pair in ends if isinstance(pair, list) and len(pair) == 2]
    return max((end for _, end in pairs if is_int(end, 0, 2**63)), default=0)


def _bytes(count: int) -> str:
    return f"{show(count)} byte{'' if count == 1 else 's'}"


def _missing(count: int, at_least: str = "") -> str:
    """What to do about a file that is shorter than it says.

    >>> _missing(120)
    ': 120 bytes are missing, fetch the file again'
    """
    if count <= 0:
        return ": fetch the file again"
    return f": {at_least}{_bytes(count)} {'is' if count == 1 else 'are'} missing, fetch the file again"


def _entry(name: str, fields: Any, size: int, missing: int) -> tuple[np.dtype[Any], Shape, int, int]:
    """The type, shape, first and last byte of one tensor."""
    if not isinstance(fields, dict) or fields.keys() != _FIELDS:  # rule 6
        refuse(6, f"tensor {show(name)} must have exactly dtype, shape and data_offsets")
    kind, shape, offsets = fields["dtype"], fields["shape"], fields["data_offsets"]
    dtype = DTYPES.get(kind) if isinstance(kind, str) else None
    if dtype is None:  # rule 7
        refuse(7, f"tensor {show(name)} has the dtype {show(kind)}: {', '.join(DTYPES)} are allowed")
    if not isinstance(shape, list) or not is_shape(shape, 0):  # rule 8
        refuse(
            8, f"tensor {show(name)} has the shape {show(shape)}: up to 8 sizes of at most 2^31 - 1 in all"
        )
    if (
        not isinstance(offsets, list)
        or len(offsets) != 2
        or not all(is_int(offset, 0, size) for offset in offsets)
    ):
        if missing > 0:
            refuse(9, f"cut short{_missing(missing)}")
        refuse(
            9,
            f"damaged: tensor {show(name)} is at {show(offsets)}, and two offsets from 0 to {size} are "
            f"allowed{_missing(0)}",
        )  # rule 9
    begin, end = offsets
    if end - begin != math.prod(shape) * dtype.itemsize:  # rule 9
        refuse(
            9,
            f"tensor {show(name)} of shape {show(shape)} and dtype {kind} is at {offsets}: the sizes differ",
        )
    if begin % dtype.itemsize:  # rule 10
        refuse(
            10,
            f"tensor {show(name)} is at byte {begin}, which is not a multiple of its {dtype.itemsize} bytes",
        )
    return dtype, tuple(shape), begin, end


def _check_tiling(spans: list[tuple[int, int]], size: int) -> None:
    """One tensor begins where another ends, from the first byte of the data to the last."""
    at = 0
    for begin, end in sorted(spans):
        if begin != at:  # rule 11
            refuse(11, f"the tensors leave a hole or overlap at byte {min(begin, at)} of the data")
        at = end
    if at != size:  # rule 11
        refuse(11, f"the tensors end at byte {at} of {size} bytes of data")


def layout(arrays: Mapping[str, Array], text: str, packed: Collection[str] = ()) -> tuple[bytes, list[Array]]:
    """The header of these arrays, length and padding included, and the arrays in the order of the data.

    Those that are packed layers are aligned as the widest elements are.
    """
    header: dict[str, Any] = {METADATA: {"membound": text}}
    ordered = sorted(  # so that all are aligned without holes
        arrays.items(), key=lambda item: -4 if item[0] in packed else -item[1].itemsize
    )
    begin = 0
    for name, array in ordered:
        end = begin + array.nbytes
        header[name] = {
            "dtype": _NAMES[array.dtype],
            "shape": list(array.shape),
            "data_offsets": [begin, end],
        }
        begin = end
    body = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    body += b" " * (-(8 + len(body)) % ALIGNMENT)
    return len(body).to_bytes(8, "little") + body, list(map(operator.itemgetter(1), ordered))
