"""Weights in files: any supported kind into a network, and a network's into a plain safetensors file."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from membound.data import Preprocess
from membound.data.pictures import checked_size
from membound.errors import MemboundError, WeightsError, a_kind
from membound.modules import plain_keys
from membound.store.other_files import refuse_tflite
from membound.train.checkpoint import read_tensors, write_tensors
from membound.zoo import load_caffemodel

CHECKPOINT = "checkpoint.safetensors"  # in the folder of a run
MODEL, MEAN_IMAGE = "model/", "membound.mean_image"
TORCH_SUFFIXES = (".pt", ".pth", ".bin", ".ckpt")


def save_weights(path: Path, model: nn.Module, preprocess: Preprocess, about: Mapping[str, Any]) -> None:
    """Write a network's weights under their plain names; how images are prepared travels with them."""
    write_state(path, model.state_dict(), preprocess, about)


def write_state(
    path: Path, state: Mapping[str, Tensor], preprocess: Preprocess, about: Mapping[str, Any]
) -> None:
    """The same of a state dict, such as one that was gathered from several processes."""
    tensors = plain_keys(dict(state))
    if preprocess.mean_image is not None:
        tensors[MEAN_IMAGE] = torch.from_numpy(preprocess.mean_image)
    write_tensors(path, tensors, {"membound": {"preprocess": preprocess.to_json(), **about}})


def load_weights_(model: nn.Module, path: Path, names: Mapping[str, str] | None = None) -> Preprocess | None:
    """Copy the weights of a file into `model`, all or none; the preprocessing that the file carries, or None.

    Kinds: safetensors (ours, checkpoints of a run, anybody's), .caffemodel, and torch's .pt/.pth state dicts, which
    are loaded without executing anything that they contain.
    """
    path = Path(path)
    if path.is_dir() and (path / CHECKPOINT).exists():
        path = path / CHECKPOINT
    if not path.is_file():
        raise WeightsError(f"there is no file of weights at {path}")
    refuse_tflite(path)
    kind = _kind(path)
    if kind == "caffemodel":
        load_caffemodel(model, path, names)
        return None
    if names:
        raise WeightsError(f"{path}: a map of names is for .caffemodel files; this is a {kind} file")
    preprocess = None
    if kind == "safetensors":
        tensors, metadata = _read_safetensors(path)
        checkpoint = {
            name.removeprefix(MODEL): value for name, value in tensors.items() if name.startswith(MODEL)
        }
        encoded = any(":" in name or value.dtype == torch.uint8 for name, value in tensors.items())
        if "membound" in metadata and encoded and not checkpoint:
            raise WeightsError(
                f"{path} is a model file, as fit and export write it, with its weights encoded: give the weights that "
                "it was made from, such as those that membound train wrote"
            )
        preprocess = _preprocess(path, tensors, metadata)
        tensors = checkpoint or tensors
    else:
        tensors = _read_torch(path)
    # Of networks whose published files have other names.
    rename = getattr(model, "published_name", lambda name: name)
    _copy_(model, {rename(name): value for name, value in plain_keys(tensors).items()}, path)
    return preprocess


def saved_facts(path: Path) -> dict[str, Any]:
    """What a file of ours says about its training, besides the weights; what it does not say is left out.

    `seed`, `image_size` (the side of squares, or height and width), `shape` of the images and the names of `classes`.
    """
    path = path / CHECKPOINT if path.is_dir() else path
    if not path.is_file():  # opening a pipe would wait
        return {}
    try:
        with safe_open(path, framework="numpy") as file:
            about = json.loads((file.metadata() or {}).get("membound", "{}"))
    except (SafetensorError, OSError, ValueError, RecursionError):
        return {}  # of another kind, or damaged: loading it says what is wrong
    if isinstance(about, dict) and isinstance(about.get("description"), dict):
        about = about["description"]  # of a run's checkpoint
    if not isinstance(about, dict):
        return {}
    found = {key: about[key] for key, check in _FACTS.items() if key in about and check(about[key])}
    if isinstance(size := found.get("image_size"), list):
        found["image_size"] = checked_size(size)
    return found


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_list(value: object, check: Callable[[object], bool]) -> bool:
    return isinstance(value, list) and len(value) > 0 and all(map(check, value))


_FACTS: dict[str, Callable[[object], bool]] = {
    "seed": _is_count,
    "image_size": lambda value: _is_count(value) or _is_list(value, _is_count),
    "shape": lambda value: _is_list(value, _is_count),
    "classes": lambda value: _is_list(value, lambda name: isinstance(name, str)),
}


def _kind(path: Path) -> str:
    """By name, else by content: a safetensors header is a length and a '{', and torch writes a zip."""
    with open(path, "rb") as file:
        start = file.read(9)
    by_name = {".safetensors": "safetensors", ".caffemodel": "caffemodel"} | dict.fromkeys(
        TORCH_SUFFIXES, "torch"
    )
    if path.suffix in by_name:
        return by_name[path.suffix]
    if start[:4] == b"PK\x03\x04":
        return "torch"
    if len(start) == 9 and start[8:] == b"{" and start[6:8] == b"\0\0":
        return "safetensors"
    if path.suffix:
        raise WeightsError(
            f"{path}: {path.suffix} is not a file of weights: give .safetensors, {TORCH_SUFFIXES[0]} or .caffemodel"
        )
    return "caffemodel"


def _read_safetensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    try:
        return read_tensors(path)
    except (SafetensorError, MemboundError) as error:
        raise WeightsError(str(error)) from None


def _preprocess(path: Path, tensors: dict[str, Tensor], metadata: dict[str, Any]) -> Preprocess | None:
    image = tensors.pop(MEAN_IMAGE, None)
    about = metadata.get("membound")
    if not isinstance(about, dict) or "preprocess" not in about:
        return None
    try:
        return Preprocess.from_json(about["preprocess"], None if image is None else image.numpy())
    except MemboundError as error:
        raise WeightsError(f"{path}: {error}") from None


def _read_torch(path: Path) -> dict[str, Tensor]:
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file makes the unpickler raise anything at all
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        if "weights only" in reason.lower():  # torch's own advice is to trust the file
            reason = "it holds more than tensors, such as a whole pickled module"
        raise WeightsError(
            f"{path} cannot be loaded safely as a torch state dict ({reason}): save it with "
            "torch.save(model.state_dict(), ...) or as safetensors"
        ) from None
    for key in ("state_dict", "model_state_dict", "model"):
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
    if not isinstance(content, Mapping) or not all(isinstance(value, Tensor) for value in content.values()):
        raise WeightsError(
            f"{path} holds {a_kind(content)}, not a state dict: names mapped to tensors are needed"
        )
    return dict(content)


def _copy_(model: nn.Module, tensors: dict[str, Tensor], path: Path) -> None:
    wanted = plain_keys(model.state_dict())
    missing, extra = sorted(wanted.keys() - tensors.keys()), sorted(tensors.keys() - wanted.keys())
    if missing or extra:
        lacks = f"lacks {', '.join(missing[:8])}" if missing else ""
        has = f"has {', '.join(extra[:8])}, which the network does not" if extra else ""
        raise WeightsError(f"{path} does not fit the network: it {' and '.join(filter(None, (lacks, has)))}")
    for name, value in tensors.items():
        if value.shape != wanted[name].shape:
            raise WeightsError(
                f"{path} does not fit the network: {name} is {tuple(value.shape)} there, "
                f"here {tuple(wanted[name].shape)}"
            )
        if value.is_floating_point() != wanted[name].is_floating_point() or value.is_complex():
            raise WeightsError(
                f"{path}: {name} has the type {value.dtype}, the network's is {wanted[name].dtype}"
            )
        if not bool(value.to(wanted[name].dtype).isfinite().all()):
            raise WeightsError(f"{path}: {name} contains NaN or infinity, as {wanted[name].dtype}")
    with torch.no_grad():
        for name, value in wanted.items():
            value.copy_(tensors[name])
