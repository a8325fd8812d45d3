"""Checkpoints that survive `kill -9`: a safetensors file, written aside, flushed to disk and then renamed.

No pickle: tensors are tensors, everything else is JSON in the file's metadata.
"""

import fcntl
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor
from torch.optim import Optimizer

from membound.errors import TrainingError
from membound.store.whole import replace_file
from membound.train.parallel import World


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> None:
    """Write a safetensors file so that at every moment `path` is the old file or the new one, whole."""
    plain = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    payload = save(plain, {key: json.dumps(value) for key, value in metadata.items()})
    target = path.resolve()  # a link stays a link
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        replace_file(target, [payload])
    except OSError as error:
        raise TrainingError(f"{path} cannot be written: {error.strerror or error}") from error


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors of a safetensors file, and the metadata that `write_tensors` put there.

    What several processes wrote in parts comes back whole.
    """
    tensors, metadata = _read_file(path)
    about = metadata.get("membound")
    if isinstance(about, dict) and about.get("parts"):
        tensors |= _read_parts(path, about["parts"])
    return tensors, metadata


def _read_parts(path: Path, names: Any) -> dict[str, Tensor]:
    try:
        found = [
            _read_file(path.parent / Path(name).name)[0] for name in names
        ]  # beside it, and nowhere else
        return {name: torch.cat([part[name] for part in found]) for name in found[0]}
    except (TypeError, KeyError, RuntimeError, ValueError) as error:
        raise TrainingError(f"the parts of {path} do not fit together: delete them to start over") from error


def _read_file(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
            raw = file.metadata() or {}
    except (SafetensorError, OSError) as error:
        raise TrainingError(f"{path} is not a readable safetensors file: {error}") from None
    return tensors, {key: _decoded(value) for key, value in raw.items()}


def write_part(path: Path, tensors: Mapping[str, Tensor], step: int, world: World) -> list[str]:
    """Write this process's part of a checkpoint beside it; the names of all parts, once all are there."""
    names = [f"{path.stem}-{step}-{rank}-of-{world.size}{path.suffix}" for rank in range(world.size)]
    write_tensors(path.parent / names[world.rank], tensors, {})
    world.sum(0.0)  # nobody goes on before all have come here
    return names


def remove_parts(path: Path, but: Sequence[str] = ()) -> None:
    """Of checkpoints before."""
    for part in path.parent.glob(f"{path.stem}-*-of-*{path.suffix}"):
        if part.name not in but:
            part.unlink(missing_ok=True)


def _decoded(value: str) -> Any:
    try:
        return json.loads(value)
    except (ValueError, RecursionError):  # of somebody else, or damaged
        return value


def optimizer_tensors(optimizer: Optimizer) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """An optimizer's state as tensors and JSON."""
    state = optimizer.state_dict()
    tensors: dict[str, Tensor] = {}
    plain: dict[str, dict[str, Any]] = {}
    for index, values in state["state"].items():
        for key, value in values.items():
            if isinstance(value, Tensor):
                tensors[f"{index}.{key}"] = value
            else:
                plain.setdefault(str(index), {})[key] = value
    return tensors, {"state": plain, "param_groups": state["param_groups"]}


def load_optimizer_(optimizer: Optimizer, tensors: Mapping[str, Tensor], plain: Mapping[str, Any]) -> None:
    """The inverse of `optimizer_tensors`."""
    state: dict[int, dict[str, Any]] = {int(index): dict(values) for index, values in plain["state"].items()}
    for name, tensor in tensors.items():
        index, key = name.split(".", 1)
        state.setdefault(int(index), {})[key] = tensor
    groups = [
        {key: tuple(value) if key == "betas" else value for key, value in group.items()}
        for group in plain["param_groups"]
    ]
    optimizer.load_state_dict({"state": state, "param_groups": groups})


def seed_random(seed: int) -> None:
    """`torch.manual_seed`; where there is only a CPU, without the stack traces that it keeps for other devices."""
    if torch.accelerator.is_available():
        torch.manual_seed(seed)
    else:
        torch.default_generator.manual_seed(seed)


def random_state() -> dict[str, Tensor]:
    """Where torch's random numbers are: dropout draws from them."""
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state()
    return states


def restore_random_state(states: Mapping[str, Tensor]) -> None:
    """Go on drawing where `random_state` was taken."""
    torch.set_rng_state(states["cpu"])
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"])


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a run directory: a second process is refused, and a killed one leaves no lock behind."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = open(folder / "lock", "w")  # noqa: SIM115 (closed below)
    except OSError as error:
        reason = error.strerror or error
        raise TrainingError(f"{folder} cannot be a run directory: {reason}: choose another") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise TrainingError(
                f"another process is training in {folder}: wait for it, or choose another run directory"
            ) from None
        for left_over in folder.glob(".*.part"):  # of a process that was killed while it wrote
            left_over.unlink()
        yield
