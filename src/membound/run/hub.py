"""Networks on the Hugging Face Hub: `hf://org/name` stands for a file.

The Hub's own package fetches and caches (the extra `hub`); nothing else in membound needs it.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from membound.errors import ModelError, install

SUFFIX = ".safetensors"
SECONDS = 10.0  # that the Hub may take to say what files there are
FORMS = "hf://ORG/NAME, hf://ORG/NAME@REVISION or hf://ORG/NAME/FILE.safetensors"
# A path has made one slash of two. A revision has no slash, but for those that the Hub itself gives out.
_ADDRESS = re.compile(
    r"hf:/{1,2}(?P<repository>[\w.-]+/[\w.-]+)(@(?P<revision>refs/(pr|convert)/[^/@]+|[^/@]+))?(/(?P<file>.+))?"
)


@dataclass(frozen=True)
class Address:
    """Where a network is on the Hub; without a `file` it is the only one there."""

    repository: str
    revision: str | None = None
    file: str | None = None

    def __str__(self) -> str:
        revision = "" if self.revision is None else f"@{self.revision}"
        return f"hf://{self.repository}{revision}" + ("" if self.file is None else f"/{self.file}")


def is_address(path: str | os.PathLike[str]) -> bool:
    return os.fspath(path).startswith("hf:/")


def parse(text: str | os.PathLike[str]) -> Address:
    """The parts of an address.

    >>> parse("hf://someone/lenet@v1/nets/small.safetensors")
    Address(repository='someone/lenet', revision='v1', file='nets/small.safetensors')
    """
    found = _ADDRESS.fullmatch(os.fspath(text))
    if found is None:
        raise ModelError(f"{os.fspath(text)} is not an address on the Hugging Face Hub: write {FORMS}")
    address = Address(found["repository"], found["revision"], found["file"])
    if address.file is not None and not address.file.endswith(SUFFIX):
        raise ModelError(f"{address} is not a model file: its name must end in {SUFFIX}, as in {FORMS}")
    return address


def fetch(text: str | os.PathLike[str]) -> Path:
    """The file at an address: downloaded, or from the cache; a ModelError says why not."""
    address = parse(text)
    try:
        import huggingface_hub as hub
        from huggingface_hub import errors
    except ImportError:
        raise ModelError(
            f"{address} is on the Hugging Face Hub, whose package is not installed: {install('hub')}"
        ) from None
    try:
        file = address.file or _only_model(hub, address)
        return Path(hub.hf_hub_download(address.repository, file, revision=address.revision))
    except ModelError:
        raise
    except errors.GatedRepoError:
        raise ModelError(
            f"{address}: access must be asked for on its page; then log in: hf auth login"
        ) from None
    except errors.RepositoryNotFoundError:
        raise ModelError(
            f"{address}: there is no such repository, or it is private: check its name, or log in: hf auth login"
        ) from None
    except errors.RevisionNotFoundError:
        raise ModelError(
            f"{address}: the repository has no revision {address.revision!r}: name a branch, a tag or a commit"
        ) from None
    except errors.LocalEntryNotFoundError as error:
        raise ModelError(f"{address}: {_why_not_reached(error)}, and it is not in the cache") from None
    except errors.EntryNotFoundError:
        raise ModelError(
            f"{address}: the repository has no such file: leave it out to take its only model"
        ) from None
    except Exception as error:  # of the network, of its disk: what they are depends on the version
        raise ModelError(f"{address}: cannot be fetched: {_first_line(error)}") from None


def _only_model(hub: Any, address: Address) -> str:
    """The model file of a repository that has one."""
    files = _list(hub, address)
    models = sorted(file for file in files if file.endswith(SUFFIX))
    if len(models) == 1:
        return models[0]
    if not models:
        there = ", ".join(sorted(files)[:4]) + (", ..." if len(files) > 4 else "") if files else "nothing"
        raise ModelError(
            f"{address} has no model file: one that ends in {SUFFIX} is needed, there is {there}"
        )
    named = Address(address.repository, address.revision, models[0])
    others = ", ".join(models[1:4]) + (", ..." if len(models) > 4 else "")
    raise ModelError(
        f"{address} has {len(models)} files that may be the model: name one, as in {named} (or {others})"
    )


def _list(hub: Any, address: Address) -> list[str]:
    """The files of a repository; where the Hub cannot be reached, those that are in the cache."""
    where = {"repo_id": address.repository, "revision": address.revision}
    try:
        # One question without retries: who is not connected has the cache at once.
        found = hub.HfApi().model_info(**where, timeout=SECONDS)
        return [file.rfilename for file in found.siblings or ()]
    except (
        hub.errors.RepositoryNotFoundError,
        hub.errors.RevisionNotFoundError,
        hub.errors.HFValidationError,
    ):
        raise
    except Exception as error:  # what the connection raises depends on the version
        try:
            folder = Path(hub.snapshot_download(**where, local_files_only=True))
        except hub.errors.LocalEntryNotFoundError as missing:
            raise missing from error
        return [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]


def _why_not_reached(error: BaseException) -> str:
    cause = error.__cause__
    if cause is not None and type(cause).__name__ == "OfflineModeIsEnabled":
        return "the Hugging Face Hub is not asked because HF_HUB_OFFLINE is set"
    return "the Hugging Face Hub cannot be reached" + (
        f" ({_first_line(cause)})" if cause is not None else ""
    )


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else type(error).__name__
