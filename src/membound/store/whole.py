"""Files that appear whole or not at all."""

import contextlib
import errno
import os
from collections.abc import Iterable
from pathlib import Path

from membound.errors import ModelError


def write_whole(path: Path, parts: Iterable[bytes | memoryview]) -> None:
    """Write under another name in the same folder, flush, then rename; a ModelError says why it cannot be."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial") if path.name else path
    made = False
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if path.exists() and not path.is_file():
            raise OSError(errno.EINVAL, "it is there and not a regular file")
        with open(partial, "xb") as file:
            made = True
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ModelError(f"{path}: cannot be written: {reason}") from None
    finally:
        if made:
            with contextlib.suppress(OSError):
                partial.unlink()
