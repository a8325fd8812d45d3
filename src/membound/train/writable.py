"""Whether a file of weights can be written, checked before torch is loaded."""

import secrets
from pathlib import Path

from membound.errors import MemboundError, say_no_folder


def check_writable(out: Path) -> None:
    """Before training, so that nothing is lost at its end."""
    folder = out.resolve().parent
    if not folder.is_dir():
        raise MemboundError(f"{out}: {say_no_folder(out.parent)}", about="out")
    if out.is_dir():
        raise MemboundError(f"{out} is a folder: name a file, such as {out / 'net.safetensors'}", about="out")
    if out.suffix != ".safetensors":
        raise MemboundError(
            f"{out}: weights are written as safetensors, so name the file {out.stem}.safetensors", about="out"
        )
    if out.exists() and not out.is_file():
        raise MemboundError(f"{out} is not a regular file: choose another name", about="out")
    probe = folder / f".membound-{secrets.token_hex(8)}.part"  # permissions alone do not tell: /proc has them
    try:
        probe.open("xb").close()
        probe.unlink()
    except OSError as error:
        raise MemboundError(
            f"{out}: nothing can be written in {out.parent} ({error.strerror}): choose another folder",
            about="out",
        ) from None
