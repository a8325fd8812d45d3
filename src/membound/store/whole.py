"""Files that appear whole or not at all."""

import contextlib
import errno
import hashlib
import os
import secrets
from collections.abc import Iterable
from pathlib import Path

from membound.errors import ModelError, say_no_folder


def write_whole(
    path: Path, parts: Iterable[bytes | memoryview], named: str | os.PathLike[str] | None = None
) -> None:
    """Write under another name in the same folder, flush, then rename; a ModelError says why it cannot be.

    The error names `named`, where that is what the user gave and `path` is a temporary one.
    """
    named = path if named is None else named
    try:
        target = Path(os.path.realpath(path))  # what a link points to, not the link, is replaced
        if target.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if target.exists() and not target.is_file():
            raise OSError(errno.EINVAL, "it is there and not a regular file")
        if not target.parent.is_dir():
            raise ModelError(f"{named}: {say_no_folder(Path(path).parent)}")
        replace_file(target, parts)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ModelError(f"{named}: cannot be written: {reason}") from None


def digest_file(path: str | os.PathLike[str]) -> str:
    """The SHA-256 of a file, as sha256sum prints it."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def replace_file(target: Path, parts: Iterable[bytes | memoryview]) -> None:
    """Write aside, flush to disk, rename: at every moment `target` is the old file or the new one; or an OSError."""
    # A name of its own, however many write at once. What a killed process leaves behind matches .*.part.
    partial = target.with_name(f".membound-{secrets.token_hex(8)}.part")
    try:
        with open(partial, "xb") as file:
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(target)
        _sync_folder(target.parent)
    finally:
        with contextlib.suppress(OSError):
            partial.unlink()


def _sync_folder(folder: Path) -> None:
    """Make the new name last; not every system can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
