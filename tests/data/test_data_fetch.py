"""Where data is looked for, and downloads from a server on this machine."""

import contextlib
import hashlib
import http.server
import io
import tarfile
import threading

import pytest

from membound import data
from membound.data import fetch, named
from membound.errors import DataError

CONTENT = bytes(range(256)) * 5000
MNIST = named.NAMED["mnist"].find()
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Server(http.server.ThreadingHTTPServer):
    """Serves `files`; `ranges`: it can resume; `cuts`: after how many bytes each answer breaks off."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.ranges, self.cuts, self.requests = {"/file": CONTENT}, True, [], []

    def url(self, path="/file"):
        return f"http://127.0.0.1:{self.server_port}{path}"

    def handle_error(self, request, client_address):
        pass


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        asked = self.headers.get("Range")
        self.server.requests.append(asked)
        content = self.server.files.get(self.path)
        if content is None:
            self.send_error(404)
            return
        start = int(asked[6:-1]) if asked and self.server.ranges else 0
        if start >= len(content):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(content)}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(206 if asked and self.server.ranges else 200)
        if asked and self.server.ranges:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        cut = self.server.cuts.pop(0) if self.server.cuts else None
        self.wfile.write(content[start:][:cut])


@pytest.fixture
def server():
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def bare(tmp_path, monkeypatch):
    """A place where no data is found: an empty cache, and no checkout."""
    monkeypatch.delenv("MEMBOUND_DATA", raising=False)
    monkeypatch.setenv("MEMBOUND_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(fetch, "__file__", str(tmp_path / "a/b/c/d/fetch.py"))
    return tmp_path / "cache"


def left(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_download_arrives_whole(server, tmp_path):
    target = fetch.download(server.url(), SHA256, tmp_path / "new" / "file")
    assert target.read_bytes() == CONTENT
    assert left(target.parent) == ["file"]
    fetch.download(server.url(), SHA256, target)
    assert server.requests == [None]  # the second time it is there already


def test_a_file_that_changed_on_disk_is_fetched_again(server, tmp_path):
    (tmp_path / "file").write_bytes(b"damaged")
    assert fetch.download(server.url(), SHA256, tmp_path / "file").read_bytes() == CONTENT


def test_a_broken_connection_is_resumed_at_once(server, tmp_path):
    server.cuts = [700_000, 400_000]
    fetch.download(server.url(), SHA256, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert server.requests == [None, "bytes=700000-", "bytes=1100000-"]


def test_an_interrupted_download_is_resumed_later(server, tmp_path):
    server.cuts = [500_000, 0]
    with pytest.raises(DataError, match=r"cannot download .*500000 of 1280000 bytes"):
        fetch.download(server.url(), SHA256, tmp_path / "file")
    assert left(tmp_path) == ["file.part"]
    server.requests.clear()
    fetch.download(server.url(), SHA256, tmp_path / "file")
    assert server.requests == ["bytes=500000-"]
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert left(tmp_path) == ["file"]


def test_a_server_that_cannot_resume_sends_it_all(server, tmp_path):
    server.ranges = False
    (tmp_path / "file.part").write_bytes(CONTENT[:1000])
    assert fetch.download(server.url(), SHA256, tmp_path / "file").read_bytes() == CONTENT


@pytest.mark.parametrize("part", [CONTENT, CONTENT + b"more", b"of another file", b""])
def test_whatever_an_earlier_download_left_does_no_harm(server, tmp_path, part):
    (tmp_path / "file.part").write_bytes(part)
    assert fetch.download(server.url(), SHA256, tmp_path / "file").read_bytes() == CONTENT
    assert left(tmp_path) == ["file"]


def test_a_wrong_hash_leaves_nothing(server, tmp_path):
    with pytest.raises(DataError, match="does not have the sha256"):
        fetch.download(server.url(), "0" * 64, tmp_path / "file")
    assert left(tmp_path) == []


@pytest.mark.parametrize("path", ["/missing", None])
def test_what_cannot_be_reached_is_said_in_one_line(server, tmp_path, path):
    url = server.url(path) if path else "http://127.0.0.1:9/file"
    with pytest.raises(DataError, match=r"cannot download http.*MEMBOUND_DATA") as caught:
        fetch.download(url, SHA256, tmp_path / "file")
    assert "\n" not in str(caught.value)
    assert left(tmp_path) == []


def test_a_cache_that_cannot_be_written_is_said(server, tmp_path):
    (tmp_path / "occupied").write_text("a file")
    with pytest.raises(DataError, match="cannot download"):
        fetch.download(server.url(), SHA256, tmp_path / "occupied" / "file")


def test_a_person_sees_a_bar(server, tmp_path, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    fetch.download(server.url(), SHA256, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert "file" in terminal.getvalue()


def test_pooch_is_asked_for_by_name(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pooch", None)
    with pytest.raises(DataError, match=r"needs pooch: in a checkout of membound, pip install '\.\[train\]'"):
        fetch.download("https://example.org/file", SHA256, tmp_path / "file")


def test_the_search_path_is_in_order(tmp_path, monkeypatch):
    monkeypatch.setenv("MEMBOUND_DATA", str(tmp_path / "chosen"))
    monkeypatch.delenv("MEMBOUND_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.chdir(tmp_path)
    path = fetch.search_path()
    assert path[0] == tmp_path / "chosen"
    assert path[-2:] == [tmp_path / "data", tmp_path / "xdg" / "membound"]
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert fetch.cache_folder() == tmp_path / ".cache" / "membound"
    monkeypatch.setenv("MEMBOUND_CACHE", "~/mine")
    assert fetch.cache_folder() == tmp_path / "mine"


def test_mnist_is_downloaded_where_there_is_none(server, bare, monkeypatch):
    if MNIST is None:
        pytest.skip("MNIST is not here: run from a checkout, or set MEMBOUND_DATA")
    server.files = {f"/{name}": (MNIST / name).read_bytes() for name in named.MNIST_SHA256}
    monkeypatch.setattr(named, "MNIST_URL", server.url("/"))
    assert not data.available("mnist")
    assert len(data.load("mnist").train) == 60000
    assert left(bare / "mnist") == sorted(named.MNIST_SHA256)
    server.files = {}
    assert len(data.load("mnist").test) == 10000


def test_cifar10_is_downloaded_and_unpacked(server, bare, monkeypatch):
    batches = {name: bytes([label]) + bytes(3072) for label, name in enumerate(named.CIFAR10_SHA256)}
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in batches.items():
            info = tarfile.TarInfo(f"{named.CIFAR10_FOLDER}/{name}")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    server.files = {"/cifar-10-binary.tar.gz": packed.getvalue()}
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in batches.items()}
    monkeypatch.setattr(named, "CIFAR10_URL", server.url("/cifar-10-binary.tar.gz"))
    monkeypatch.setattr(named, "CIFAR10_ARCHIVE_SHA256", hashlib.sha256(packed.getvalue()).hexdigest())
    monkeypatch.setattr(named, "CIFAR10_SHA256", hashes)
    monkeypatch.setattr(named, "_CIFAR10_BATCH", (1, 3073))
    cifar10 = data.load("cifar10")
    assert cifar10.train.labels.tolist() == [0, 1, 2, 3, 4]
    assert cifar10.test.labels.tolist() == [5]
    assert left(bare) == [named.CIFAR10_FOLDER]
    assert data.available("cifar10")


def test_without_a_connection_the_error_is_short(bare, monkeypatch):
    monkeypatch.setattr(named, "CIFAR10_URL", "http://127.0.0.1:9/file")
    with pytest.raises(
        DataError, match=r"downloaded \(no connection to 127\.0\.0\.1\): set MEMBOUND_DATA"
    ) as caught:
        data.load("cifar10")
    assert len(str(caught.value)) < 160


def test_a_set_that_is_nowhere_says_what_to_do(server, bare, monkeypatch):
    monkeypatch.setattr(named, "CIFAR10_URL", server.url("/missing"))
    with pytest.raises(
        DataError,
        match=r"^cifar10 is not here and cannot be downloaded \(HTTP Error 404.*\): set MEMBOUND_DATA to a folder "
        r"with cifar-10-batches-bin/ \(6 files\)$",
    ) as caught:
        data.load("cifar10")
    assert caught.value.__suppress_context__, "a traceback of one error, not of three"
    with contextlib.suppress(FileNotFoundError):
        assert left(bare) == []
