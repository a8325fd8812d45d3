"""Where a training run stands, as a checkpoint: written, and read back into a run that is the same."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from membound.errors import RuleError, TrainingError
from membound.modules import plain_keys
from membound.train import checkpoint as files
from membound.train.rules import load_plain_
from membound.train.run import Run
from membound.train.sharded import is_sharded, local_part, shard_all
from membound.train.weights import CHECKPOINT, MEAN_IMAGE, MODEL

# Tensors of a regularizer's state, of each weight: floats and entries under palettes, and what updates keep.
OF_WEIGHTS = {"palette": "palette/", "state": "state/"}
ACTIVATIONS = "activations/"  # how values inside the network are rounded


def save(run: Run) -> None:
    """The leader's file; what is sharded goes to a file of each process beside it."""
    if run.path is None:
        return
    moments, plain = files.optimizer_tensors(run.optimizer)
    tensors = {MODEL + name: value for name, value in plain_keys(run.model.state_dict()).items()}
    tensors |= {f"optimizer/{name}": value for name, value in moments.items()}
    regularizer = None if run.reg is None else run.reg.state_dict()
    tensors |= _take_tensors(regularizer)
    rounded = {} if run.rounded is None else run.rounded.state_dict()
    tensors |= {ACTIVATIONS + name: value for name, value in rounded.items()}
    mine = {name: local_part(value) for name, value in tensors.items() if is_sharded(value)}
    parts = files.write_part(run.path, mine, run.step, run.world) if mine else []
    if not run.world.leads:
        return
    tensors = {name: value for name, value in tensors.items() if name not in mine}
    tensors |= {f"random/{name}": value for name, value in files.random_state().items()}
    tensors["running"] = run.running
    if run.preprocess.mean_image is not None:
        tensors[MEAN_IMAGE] = torch.from_numpy(run.preprocess.mean_image)
    about = {
        "preprocess": run.preprocess.to_json(),
        "description": run.description,
        "iteration": run.step,
        "seconds": run.seconds,
        "history": run.history,
        "optimizer": plain,
        "regularizer": regularizer,
        "parts": parts,
    }
    files.write_tensors(run.path, tensors, {"membound": about})
    files.remove_parts(run.path, but=parts)


def saved_step(folder: Path) -> int | None:
    """The step that the checkpoint in a folder was taken at; None where there is none that can be read."""
    try:
        with safe_open(folder / CHECKPOINT, framework="pt") as file:
            return int(json.loads((file.metadata() or {})["membound"])["iteration"])
    except (SafetensorError, OSError, KeyError, TypeError, ValueError):
        return None


def resume(run: Run, path: Path) -> None:
    tensors, metadata = files.read_tensors(path)
    about = metadata.get("membound")
    if not isinstance(about, dict) or not isinstance(about.get("description"), dict):
        raise TrainingError(
            f"{path} is not a membound checkpoint: choose another run directory, or delete it"
        )
    _check_same(run, about["description"], path)
    try:
        _restore(run, tensors, about)
    except (KeyError, TypeError, AttributeError, ValueError, RuntimeError, RuleError) as error:
        raise TrainingError(f"{path} is damaged ({type(error).__name__}): delete it to start over") from error


def _restore(run: Run, tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
    load_plain_(run.model, shard_all(_within(tensors, MODEL), plain_keys(run.model.state_dict())))
    moments = _within(tensors, "optimizer/")  # each by its weight's number and its own name
    weights = [weight for group in run.optimizer.param_groups for weight in group["params"]]
    owners = {name: weights[int(name.split(".", 1)[0])] for name in moments}
    files.load_optimizer_(run.optimizer, shard_all(moments, owners), about["optimizer"])
    if run.world.size == 1:
        files.restore_random_state(_within(tensors, "random/"))
    else:  # only the leader's is saved, and processes must not drop the same units
        files.seed_random((run.settings.seed + run.world.rank) * 1_000_003 + about["iteration"])
    run.running.copy_(tensors["running"])
    if run.reg is not None:
        run.reg.load_state_dict(_with_tensors(about["regularizer"], tensors))
    if run.rounded is not None:
        run.rounded.load_state_dict(_within(tensors, ACTIVATIONS))
    run.step, run.seconds = int(about["iteration"]), float(about["seconds"])
    run.history = [dict(entry) for entry in about["history"]]
    run.resumed = run.step


def _take_tensors(state: dict[str, Any] | None) -> dict[str, Tensor]:
    """The tensors of a regularizer's state, taken out of it: what is left, which there are, is JSON."""
    found: dict[str, Tensor] = {}
    for part, prefix in OF_WEIGHTS.items():
        if state is not None and part in state:
            weights = state[part]
            state[part] = {name: list(of) for name, of in weights.items()}
            found |= {
                f"{prefix}{key}/{name}": value for name, of in weights.items() for key, value in of.items()
            }
    return found


def _with_tensors(state: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """The inverse of `_take_tensors`."""
    whole = dict(state)
    for part, prefix in OF_WEIGHTS.items():
        if part in state:
            whole[part] = {
                name: {key: tensors[f"{prefix}{key}/{name}"] for key in keys}
                for name, keys in state[part].items()
            }
    return whole


def _check_same(run: Run, there: Mapping[str, Any], path: Path) -> None:
    for key, here in run.description.items():
        if there.get(key) != here:
            detail = ""
            if isinstance(here, dict) and isinstance(there.get(key), dict):
                names = sorted(k for k in here.keys() | there[key].keys() if here.get(k) != there[key].get(k))
                detail = f" ({', '.join(names)})".replace("iterations", "steps")
                if key == "rules" and names[0] in here and names[0] in there[key]:
                    old, new = (_say_rule(each) for each in (there[key][names[0]], here[names[0]]))
                    detail = f" ('{names[0]}' was under {old}, and is under {new} now)"
            what = {"data": "other data", "rules": "other rules", "preprocess": "other preprocessing"}
            raise TrainingError(
                f"{path.parent} holds a run with {what.get(key, f'another {key}')}{detail}: "
                "choose another run directory, or delete it"
            )


def _say_rule(described: Any) -> str:
    """What a description of an update says, in words.

    >>> _say_rule([["l0_project"], ["ramp(1.0, 0.05)", 100]])
    'l0_project(ramp(1.0, 0.05), 100)'
    """
    kinds, numbers, *_ = described
    return f"{' and '.join(kinds)}({', '.join(map(str, numbers))})"


def _within(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
