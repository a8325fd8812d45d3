"""Where data lies: the folders that are searched, and downloads into the user's cache.

The search path is $MEMBOUND_DATA, the checkout's data/ folder, ./data, and the cache ($MEMBOUND_CACHE,
or membound/ under $XDG_CACHE_HOME or ~/.cache).
"""

import http.client
import os
import re
import sys
import urllib.error
import urllib.parse
import urllib.request
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from membound.errors import DataError, install

_CHUNK = 1 << 18
_TIMEOUT_S = 30


def cache_folder() -> Path:
    """The folder that downloads go to; it need not exist yet."""
    if chosen := os.environ.get("MEMBOUND_CACHE"):
        return Path(chosen).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "membound"


def search_path() -> list[Path]:
    """The folders in which data is looked for, in order, whether they exist or not."""
    folders = [Path.cwd() / "data", cache_folder()]
    checkout = Path(__file__).resolve().parents[3]
    if (checkout / "pyproject.toml").is_file() and (checkout / "src" / "membound").is_dir():
        folders.insert(0, checkout / "data")
    if chosen := os.environ.get("MEMBOUND_DATA"):
        folders.insert(0, Path(chosen).expanduser())
    return list(dict.fromkeys(folders))


def find(folder: str, names: tuple[str, ...] = ()) -> Path | None:
    """The first `folder` on the search path that holds all `names`, or None."""
    for root in search_path():
        place = root / folder
        if place.is_dir() and all((place / name).is_file() for name in names):
            return place
    return None


class Unreachable(DataError):
    """What cannot be downloaded, and the `reason`."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def download(url: str, sha256: str, target: Path) -> Path:
    """Download `url` to `target`, resuming an interrupted download; nothing unverified is left there."""
    try:
        import pooch
    except ImportError:
        raise DataError(f"downloading {url} needs pooch: {install('train')}") from None
    part = target.with_name(target.name + ".part")
    while True:
        resumed = part.exists()
        try:
            pooch.retrieve(
                url, f"sha256:{sha256}", target.name, target.parent, downloader=partial(_download, part=part)
            )
            return target
        except ValueError:  # a wrong hash: pooch has removed the file; what was resumed may be to blame
            if not resumed:
                raise DataError(
                    f"{url} does not have the sha256 {sha256}: nothing was kept; try again later, or put the "
                    f"right file at {target}"
                ) from None
        except (OSError, http.client.HTTPException) as error:
            reason = _say_reason(error, url)
            raise Unreachable(
                reason,
                f"cannot download {url} to {target.parent} ({reason}): check the connection and try again, "
                "or set MEMBOUND_DATA to a folder that holds the data",
            ) from None


def _say_reason(error: Exception, url: str) -> str:
    """
    >>> _say_reason(urllib.error.URLError(OSError(-3, "Name resolution failed")), "https://a.org/b")
    'no connection to a.org'
    >>> _say_reason(PermissionError(13, "Permission denied", "/cache"), "https://a.org/b")
    "[Errno 13] Permission denied: '/cache'"
    """
    is_offline = isinstance(error, urllib.error.URLError) and not isinstance(error, urllib.error.HTTPError)
    return f"no connection to {urllib.parse.urlsplit(url).hostname}" if is_offline else str(error)


def _download(url: str, output_file: str, _pooch: Any = None, *, part: Path) -> None:
    """A downloader for pooch that continues `part` while there is progress, then moves it into place."""
    size = -1
    while True:
        try:
            _transfer(url, part)
            break
        except (OSError, http.client.HTTPException):
            before, size = size, part.stat().st_size if part.exists() else -1
            if size <= max(before, 0):
                raise
    os.replace(part, output_file)


def _transfer(url: str, part: Path) -> None:
    """Append to `part` what of `url` it does not hold yet."""
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Accept-Encoding": "identity"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    try:
        response = urllib.request.urlopen(request, timeout=_TIMEOUT_S)
    except urllib.error.HTTPError as error:
        with error:
            if error.code != 416 or not have:
                raise
            if error.headers.get("Content-Range") == f"bytes */{have}":
                return  # all of it is here already
        part.unlink()
        _transfer(url, part)
        return
    with response:
        start = re.match(r"bytes (\d+)-", response.headers.get("Content-Range") or "")
        if response.status != 206 or start is None or int(start[1]) != have:
            have = 0  # the server sent the file from its beginning
        length = response.headers.get("Content-Length")
        total = have + int(length) if length else None
        with open(part, "ab" if have else "wb") as file:
            _copy(response, file, have, total, label=url.rsplit("/", 1)[-1])
            if total is not None and file.tell() != total:
                raise ConnectionError(f"the connection closed after {file.tell()} of {total} bytes")


def _copy(
    response: http.client.HTTPResponse, file: BinaryIO, have: int, total: int | None, label: str
) -> None:
    """Copy the response to the file, with a progress bar on stderr when a person watches."""
    if not sys.stderr.isatty():
        while chunk := response.read(_CHUNK):
            file.write(chunk)
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn

    columns = ("{task.description}", BarColumn(), DownloadColumn(binary_units=True), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(label, total=total, completed=have)
        while chunk := response.read(_CHUNK):
            file.write(chunk)
            progress.advance(task, len(chunk))
