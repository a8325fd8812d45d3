"""What stands in for the Hugging Face Hub: a server on this machine that speaks its protocol, and its cache on disk."""

import contextlib
import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def fill_cache(cache: Path, repository: str, files: dict[str, bytes], revision: str = "main") -> None:
    """The files of a repository as an earlier download leaves them."""
    home = cache / f"models--{repository.replace('/', '--')}"
    for name, content in files.items():
        path = home / "snapshots" / COMMIT / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    (home / "refs").mkdir(parents=True, exist_ok=True)
    (home / "refs" / revision).write_text(COMMIT)


@contextlib.contextmanager
def serve(repositories: dict[str, dict[str, bytes]]):
    """The address of a Hub with these repositories, each of which has the revisions main and v1 and one commit."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *arguments):
            pass

        def do_HEAD(self):
            self.do_GET()

        def do_GET(self):
            parts = self.path.partition("?")[0].strip("/").split("/")
            asked = parts[:2] == [
                "api",
                "models",
            ]  # about a repository: /api/models/ORG/NAME[/revision/REVISION]
            parts = parts[2:] if asked else parts  # else for a file: /ORG/NAME/resolve/REVISION/PATH
            files = repositories.get("/".join(parts[:2]))
            if files is None:
                return self.answer(404, b"{}", {"X-Error-Code": "RepoNotFound"})
            if len(parts) > 3 and parts[3] not in ("main", "v1", COMMIT):
                return self.answer(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
            if asked:
                about = {
                    "id": "/".join(parts[:2]),
                    "sha": COMMIT,
                    "siblings": [{"rfilename": name} for name in files],
                }
                return self.answer(200, json.dumps(about).encode(), {"Content-Type": "application/json"})
            name = "/".join(parts[4:])
            if name not in files:
                return self.answer(404, b"{}", {"X-Error-Code": "EntryNotFound"})
            etag = f'"{hashlib.sha1(files[name]).hexdigest()}"'
            return self.answer(200, files[name], {"ETag": etag, "X-Repo-Commit": COMMIT})

        def answer(self, status, content, headers):
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
