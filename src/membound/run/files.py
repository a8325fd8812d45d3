"""Files that the commands take and give: models, and arrays in .npy files."""

import io
import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from membound.data.preprocess import taken_by
from membound.errors import DataError, ModelError, say_absent
from membound.run.common import narrowed
from membound.run.hub import fetch, is_address
from membound.run.micro_net import MicroNet
from membound.run.net import Net
from membound.store.other_files import refuse_other_kinds
from membound.store.rules import MAX_HEADER
from membound.store.whole import write_whole

Array = npt.NDArray[Any]


def find_model_file(given: Path) -> Path:
    """The path of a model file, which is fetched first if it is an address on the Hub.

    What is no model file is refused in words that help more than the first rule it breaks.
    """
    path = fetch(given) if is_address(given) else given
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise ModelError(f"{path} is a {'folder' if path.is_dir() else 'device'}: name a model file")
    except (OSError, ValueError) as error:
        if not isinstance(error, FileNotFoundError):
            reason = getattr(error, "strerror", None) or str(error)
            raise ModelError(f"{path}: cannot be read: {reason}") from None
        remedy = ""
        if not path.suffix and path.parent == Path():
            remedy = "; a model file is needed, not the name of a network: membound fit and mb.save write one"
        raise ModelError(f"{say_absent(path, '.safetensors')}{remedy}") from None
    refuse_other_kinds(path)
    if holds_plain_weights(path):
        raise ModelError(
            f"{path} holds weights without their network, or its header is damaged: load weights into their network "
            "and save that with mb.save, or make a model file of both with the command membound export; fetch a "
            "damaged file again"
        )
    return path


def holds_plain_weights(path: Path) -> bool:
    """Whether this is a safetensors file of weights alone, such as `membound train` writes."""
    if not path.is_file():  # opening a pipe would wait
        return False
    try:
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length)) if 2 <= length <= MAX_HEADER else None
        if not isinstance(header, dict):
            return False
        about = json.loads(header.get("__metadata__", {}).get("membound", "{}"))
    except (OSError, ValueError, AttributeError, TypeError, RecursionError):
        return False
    return isinstance(about, dict) and "v" not in about  # which every description of a network has


def read_array(path: Path) -> Array:
    """The array in a .npy file; pickled objects are refused."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise DataError(f"{path} is a {'folder' if path.is_dir() else 'device'}: name a .npy file")
        found = np.load(path, allow_pickle=False)
    except DataError:
        raise
    except FileNotFoundError:
        raise DataError(say_absent(path)) from None
    except Exception as error:  # a damaged file makes numpy raise anything at all
        reason = getattr(error, "strerror", None) or " ".join(str(error).split()) or type(error).__name__
        if path.suffix == ".bin":
            raise DataError(
                f"{path}: a .bin file is raw input for the main of exported C: to run it here, save the array with "
                "np.save, as a .npy file"
            ) from None
        if "pickle" in reason:  # what numpy says of anything that is not its own
            raise DataError(
                f"{path} is neither a picture nor a .npy file of numbers: give pictures (.jpg, .png, ...), or an array "
                "saved with np.save, such as images uint8 [N, C, H, W]"
            ) from None
        raise DataError(
            f"{path}: cannot be read: {reason[:200]}: a .npy file of numbers is needed, as np.save writes it, such as "
            "images uint8 [N, C, H, W], or pictures, whose names end in .jpg, .png and the like"
        ) from None
    if not isinstance(found, np.ndarray):
        found.close()
        raise DataError(f"{path} is an .npz file: save the one array with np.save")
    return found


def read_arrays(path: Path) -> dict[str, Array]:
    """The arrays in an .npz file by their names; pickled objects are refused."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise DataError(f"{path} is a {'folder' if path.is_dir() else 'device'}: name an .npz file")
        with np.load(path, allow_pickle=False) as found:
            return {name: found[name] for name in found.files}
    except DataError:
        raise
    except FileNotFoundError:
        raise DataError(say_absent(path)) from None
    except Exception as error:  # a damaged file makes numpy raise anything at all
        reason = getattr(error, "strerror", None) or " ".join(str(error).split()) or type(error).__name__
        if "pickle" in reason:  # what numpy says of anything that is not its own
            reason = "it is not an .npz file of numbers"
        raise DataError(
            f"{path}: cannot be read: {reason[:200]}: an .npz file of arrays is needed, as np.savez writes it"
        ) from None


def write_array(path: Path, array: Array) -> None:
    """A .npy file, written whole or not at all."""
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    write_whole(path, [buffer.getvalue()])


def write_outputs(path: Path, outputs: Mapping[str, Array]) -> None:
    """A .npy file of one output, an .npz file of several, written whole or not at all."""
    if path.suffix == ".npy":
        return write_array(path, next(iter(outputs.values())))
    buffer = io.BytesIO()
    np.savez(buffer, **outputs)  # type: ignore[arg-type]
    write_whole(path, [buffer.getvalue()])
    return None


def prepare(net: Net | MicroNet, array: Array) -> Array:
    """An array as `net(x)` takes it: what the file says how to prepare is prepared, other float32 is taken as it is.

    A file prepares uint8, or the float32 that its network was trained on; then uint8 is refused.
    """
    said = net.model.preprocess
    if isinstance(net, MicroNet) and array.dtype == np.uint8:
        return array  # it prepares pixels as the device does
    if array.dtype == np.uint8 or (said is not None and taken_by(said) == "float32"):
        return net.preprocess(array)
    return array


def run_arrays(net: Net, arrays: Mapping[str, Array]) -> dict[str, npt.NDArray[np.float32]]:
    """The network's outputs by name, for an array for each input; the first is prepared as the file says."""
    wanted = [port.name for port in net.inputs]
    if set(arrays) != set(wanted):
        raise DataError(
            f"the input has the arrays {', '.join(arrays) or 'none'}: this network takes "
            f"{'; '.join(map(str, net.inputs))}"
        )
    first = wanted[0]
    given = dict(arrays)
    if not net.inputs[0].whole:
        given[first] = prepare(net, given[first])
    return _by_name(net, net(**given))


def _by_name(net: Net | MicroNet, found: Any) -> dict[str, npt.NDArray[np.float32]]:
    if isinstance(found, dict):
        return found
    if isinstance(found, tuple):
        assert isinstance(net, Net)
        return {port.name: each for port, each in zip(net.outputs, found, strict=True)}
    return {"output": found}


def run_array(net: Net | MicroNet, array: Array) -> dict[str, npt.NDArray[np.float32]]:
    """The network's outputs by name for an array, which is prepared as the file says; most have one, `output`."""
    if isinstance(net, Net) and len(net.inputs) > 1:
        raise DataError(
            f"the network takes {len(net.inputs)} inputs: give an .npz file with an array for each: "
            f"{'; '.join(map(str, net.inputs))}"
        )
    if isinstance(net, Net) and net.inputs[0].whole and array.ndim and len(array):
        return _by_name(net, net(array))
    array = narrowed(array)
    _check_array(net, array)
    return _by_name(net, net(prepare(net, array)))


def run_integers(net: MicroNet, array: Array) -> dict[str, Array]:
    """What the device gives for an array: scores as `output`, and the int8 that they stand for as `integers`.

    uint8 is what the device is fed with; float32 is taken as `run_array` does.
    """
    array = narrowed(array)
    _check_array(net, array)
    integers = net.integers(prepare(net, array))
    return {"output": net.scores(integers), "integers": integers}


def _check_array(net: Net | MicroNet, array: Array) -> None:
    if array.ndim == 0 or len(array) == 0:
        raise DataError(f"the input has the shape {array.shape}: it is empty to run")
    said = net.model.preprocess or {}
    of_numbers = bool(said) and taken_by(said) == "float32"  # what prepares them speaks of images
    if array.dtype not in (np.uint8, np.float32):
        allowed = "allowed are uint8 (images as they are) and float32 (prepared)"
        if of_numbers:
            bytes_too = (
                " (uint8 is read as the bytes that net_input makes)" if isinstance(net, MicroNet) else ""
            )
            allowed = f"save the numbers, as in training, as x.astype('float32'){bytes_too}"
        raise DataError(f"the input has the type {array.dtype}: {allowed}")
    if of_numbers and "crop" not in said and array.shape[1:] != net.input_shape:
        wanted = ", ".join(map(str, ("batch", *net.input_shape)))
        raise DataError(f"the input has the shape {array.shape}: this network takes ({wanted})")
    if array.dtype == np.float32 and not np.isfinite(array).all():
        raise DataError(
            "the input has values that are not finite (NaN or infinity): the output would mean nothing"
        )
