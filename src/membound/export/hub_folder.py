"""A network as a folder that can be uploaded to the Hugging Face Hub as it is: the model file and its card."""

import os
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from membound.errors import ModelError, say_no_folder
from membound.export.card import make_card
from membound.run.inspection import inspect
from membound.store.file import read
from membound.store.whole import write_whole

MODEL, CARD = "model.safetensors", "README.md"


def check_folder(folder: Path) -> None:
    """Refuse to write over anything, before there is anything to write."""
    if folder.exists() and not folder.is_dir():
        raise ModelError(f"{folder} is a file: give a folder, new or empty")
    if folder.exists() and any(folder.iterdir()):
        raise ModelError(f"{folder} exists and is not an empty folder: choose another name, or remove it")
    if not folder.absolute().parent.is_dir():
        raise ModelError(f"{folder}: {say_no_folder(folder.parent)}")


def write_folder(
    folder: str | os.PathLike[str],
    file: str | os.PathLike[str],
    *,
    accuracy: float | None = None,
    accuracy_on: str = "test",
    data: str | None = None,
    dense: Mapping[str, Any] | None = None,
) -> None:
    """A folder to upload: the model file as model.safetensors, and a model card; whole or not at all.

    `accuracy` is in percent, on `accuracy_on` images of `data`; `dense` is what is known of the dense network beside
    it: `file_bytes`, `nonzeros`, `accuracy`, as `Fitted.dense` has them.
    """
    target = Path(folder)
    check_folder(target)
    facts = inspect(read(file))
    name = target.absolute().name
    card = make_card(name, facts, accuracy=accuracy, accuracy_on=accuracy_on, data=data, dense=dense or {})
    aside = target.absolute().with_name(f".membound-{secrets.token_hex(8)}.part")
    try:
        aside.mkdir()
        write_whole(aside / MODEL, [Path(file).read_bytes()], target)
        write_whole(aside / CARD, [card.encode()], target)
        aside.rename(target)
    except OSError as error:
        raise ModelError(f"{target}: cannot be written: {error.strerror or error}") from None
    finally:
        shutil.rmtree(aside, ignore_errors=True)
