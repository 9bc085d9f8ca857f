"""A hub on this machine: what huggingface_hub asks of one, for a few small files.

    with SmallHub({"org/repo": {"config.json": b"…"}}, large=("w.gguf",)) as hub:  # hub.url is HF_ENDPOINT

Files named in `large` are LFS files (known by sha256), the others git blobs. `hub.damage` answers a file with other
bytes than its digest says, `hub.breaks_off` ends a file's first answer in the middle.
"""

import hashlib
import json
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType

REVISION = "1234567890abcdef1234567890abcdef12345678"


class SmallHub:
    def __init__(
        self, repos: Mapping[str, Mapping[str, bytes]], large: tuple[str, ...] = (), gated: tuple[str, ...] = ()
    ) -> None:
        self.repos, self.large, self.gated = repos, large, gated
        self.damage: set[str] = set()
        self.breaks_off: set[str] = set()
        self.asked: list[tuple[str, str, str]] = []  # method, path, range
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> "SmallHub":
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def info(self, repo: str) -> dict[str, object]:
        siblings = [self._sibling(name, content) for name, content in self.repos[repo].items()]
        return {"id": repo, "modelId": repo, "sha": REVISION, "private": False, "tags": [], "siblings": siblings}

    def _sibling(self, name: str, content: bytes) -> dict[str, object]:
        sibling: dict[str, object] = {"rfilename": name, "size": len(content), "blobId": git_blob(content)}
        if name in self.large:
            sha256 = hashlib.sha256(content).hexdigest()
            sibling["lfs"] = {"sha256": sha256, "size": len(content), "pointerSize": 134}
        return sibling

    def etag(self, name: str, content: bytes) -> str:
        return hashlib.sha256(content).hexdigest() if name in self.large else git_blob(content)


def git_blob(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def _handler(hub: SmallHub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self._answer()

        def do_GET(self) -> None:
            self._answer()

        def log_message(self, format: str, *arguments: object) -> None:
            """Nothing is printed."""

        def _answer(self) -> None:
            path = self.path.partition("?")[0]
            hub.asked.append((self.command, path, self.headers.get("Range", "")))
            parts = path.strip("/").split("/")
            if parts[:2] == ["api", "models"] and "/".join(parts[2:4]) in hub.repos:
                repo = "/".join(parts[2:4])
                if repo in hub.gated:
                    return self._refuse(403, "GatedRepo")
                return self._send(200, json.dumps(hub.info(repo)).encode(), {"Content-Type": "application/json"})
            repo, name = "/".join(parts[:2]), "/".join(parts[4:])
            if parts[2:3] == ["resolve"] and name in hub.repos.get(repo, {}):
                return self._file(name, hub.repos[repo][name])
            return self._refuse(404, "RepoNotFound")

        def _refuse(self, status: int, code: str) -> None:
            self._send(status, b"{}", {"X-Error-Code": code, "X-Error-Message": "refused"})

        def _file(self, name: str, content: bytes) -> None:
            headers = {"ETag": f'"{hub.etag(name, content)}"', "X-Repo-Commit": REVISION, "Accept-Ranges": "bytes"}
            if name in hub.damage:
                content = bytes(reversed(content))
            start = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")[0])
            if start:
                headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
            if self.command == "GET" and name in hub.breaks_off:
                hub.breaks_off.remove(name)
                self._send(200, content, headers, num_sent=len(content) // 2)
                return
            self._send(206 if start else 200, content[start:], headers)

        def _send(self, status: int, body: bytes, headers: Mapping[str, str], num_sent: int | None = None) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body[:num_sent])
            if num_sent is not None:
                self.wfile.flush()
                self.close_connection = True

    return Handler
