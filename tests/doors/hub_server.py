"""A stand-in of the Hugging Face hub on loopback: the endpoints that ``huggingface_hub`` uses for models."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

TOKEN = "hf_secret"
_ID = r"(?P<id>[\w.-]+/[\w.-]+)"
_LARGE = 2_000  # bytes from which on a file is uploaded by LFS


@dataclass
class Repository:
    """Files by commit, and commits by branch."""

    is_private: bool = False
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    lfs: set[bytes] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.commit("main", {})

    def commit(self, branch: str, files: dict[str, bytes]) -> str:
        digest = hashlib.sha1(f"{len(self.commits)} {sorted(files)}".encode()).hexdigest()
        self.commits[digest] = dict(files)
        self.branches[branch] = digest
        return digest

    def find(self, revision: str) -> str | None:
        return self.branches.get(revision) or (revision if revision in self.commits else None)

    @property
    def files(self) -> dict[str, bytes]:
        """The files of the main branch."""
        return self.commits[self.branches["main"]]


class Hub:
    """All repositories, what was uploaded, and which requests came."""

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.blobs: dict[str, bytes] = {}
        self.requests: list[tuple[str, str]] = []
        self.is_down = False
        self.url = ""


@contextmanager
def serve():
    """Serve an empty hub until the end of the block."""
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self._answer("HEAD")

    def do_GET(self):
        self._answer("GET")

    def do_POST(self):
        self._answer("POST")

    def do_PUT(self):
        self._answer("PUT")

    def _answer(self, method: str) -> None:
        path = unquote(urlsplit(self.path).path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.hub.requests.append((method, path))
        if self.hub.is_down:
            self._send(503, b"")
            return
        for known, pattern, function in _ROUTES:
            found = re.fullmatch(pattern, path)
            if found is not None and method in known:
                function(self, body, **found.groupdict())
                return
        self._send(404, b"")

    @property
    def _is_known_user(self) -> bool:
        return self.headers.get("Authorization") == f"Bearer {TOKEN}"

    def _repository(self, name: str, *, to_write: bool = False) -> Repository | None:
        """Return a repository, or answer as the hub does to strangers: it does not exist."""
        found = self.hub.repositories.get(name)
        if found is None or ((found.is_private or to_write) and not self._is_known_user):
            self._send(401 if not self._is_known_user else 404, b"", {"X-Error-Code": "RepoNotFound"})
            return None
        return found

    def _create(self, body: bytes) -> None:
        wanted = json.loads(body)
        name = f"{wanted['organization']}/{wanted['name']}"
        if not self._is_known_user:
            self._send(401, b"")
        elif name in self.hub.repositories:
            self._json({"error": "exists", "url": f"{self.hub.url}/{name}"}, 409)
        else:
            is_private = wanted.get("private") is True or wanted.get("visibility") == "private"
            self.hub.repositories[name] = Repository(is_private)
            self._json({"url": f"{self.hub.url}/{name}", "name": name})

    def _validate(self, body: bytes) -> None:
        is_valid = json.loads(body)["content"].startswith("---\n")
        self._json({"errors": [] if is_valid else [{"message": "no front matter"}], "warnings": []})

    def _branch(self, body: bytes, id: str, revision: str) -> None:
        if (found := self._repository(id, to_write=True)) is not None:
            if revision in found.branches:
                self._json({"error": "exists"}, 409)
                return
            found.branches[revision] = found.branches["main"]
            self._json({})

    def _info(self, body: bytes, id: str, revision: str | None = None) -> None:
        if (found := self._repository(id)) is None:
            return
        if (commit := found.find(revision or "main")) is None:
            self._send(404, b"", {"X-Error-Code": "RevisionNotFound"})
            return
        files = [
            {"rfilename": name, "size": len(content), "blobId": _sha1(content)}
            for name, content in found.commits[commit].items()
        ]
        self._json({"_id": "1", "id": id, "modelId": id, "sha": commit, "private": found.is_private, "siblings": files})

    def _preupload(self, body: bytes, id: str, revision: str) -> None:
        if self._repository(id, to_write=True) is not None:
            sizes = {file["path"]: file["size"] for file in json.loads(body)["files"]}
            modes = {path: "lfs" if size >= _LARGE else "regular" for path, size in sizes.items()}
            files = [{"path": path, "uploadMode": mode, "shouldIgnore": False} for path, mode in modes.items()]
            self._json({"files": files})

    def _batch(self, body: bytes, id: str) -> None:
        if self._repository(id, to_write=True) is not None:
            objects = [
                {**one, "actions": {"upload": {"href": f"{self.hub.url}/lfs/{one['oid']}", "header": {}}}}
                for one in json.loads(body)["objects"]
            ]
            self._json({"transfer": "basic", "objects": objects})

    def _upload(self, body: bytes, oid: str) -> None:
        is_whole = hashlib.sha256(body).hexdigest() == oid
        if is_whole:
            self.hub.blobs[oid] = body
        self._send(200 if is_whole else 400, b"")

    def _commit(self, body: bytes, id: str, revision: str) -> None:
        if (found := self._repository(id, to_write=True)) is None:
            return
        files = dict(found.commits[found.branches[revision]])
        for line in body.splitlines():
            entry = json.loads(line)
            value = entry["value"]
            if entry["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif entry["key"] == "lfsFile":
                files[value["path"]] = self.hub.blobs[value["oid"]]
            elif entry["key"] == "deletedFile":
                del files[value["path"]]
        commit = found.commit(revision, files)
        self._json({"success": True, "commitOid": commit, "commitUrl": f"{self.hub.url}/{id}/commit/{commit}"})

    def _resolve(self, body: bytes, id: str, revision: str, file: str) -> None:
        if (found := self._repository(id)) is None:
            return
        commit = found.find(revision)
        if commit is None or file not in found.commits[commit]:
            self._send(404, b"", {"X-Error-Code": "EntryNotFound"})
            return
        content = found.commits[commit][file]
        headers = {"X-Repo-Commit": commit, "ETag": f'"{_sha1(content)}"', "Accept-Ranges": "bytes"}
        if len(content) >= _LARGE:
            headers |= {"X-Linked-Size": str(len(content)), "X-Linked-ETag": f'"{hashlib.sha256(content).hexdigest()}"'}
        begin = re.match(r"bytes=(\d+)-", self.headers.get("Range") or "")
        self._send(206 if begin else 200, content[int(begin[1]) if begin else 0 :], headers)

    def _json(self, value, status: int = 200) -> None:
        self._send(status, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _send(self, status: int, content: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


def _sha1(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


_ROUTES = [
    (("POST",), "/api/repos/create", _Handler._create),
    (("POST",), "/api/validate-yaml", _Handler._validate),
    (("POST",), rf"/api/models/{_ID}/branch/(?P<revision>.+)", _Handler._branch),
    (("POST",), rf"/api/models/{_ID}/preupload/(?P<revision>.+)", _Handler._preupload),
    (("POST",), rf"/api/models/{_ID}/commit/(?P<revision>.+)", _Handler._commit),
    (("GET",), rf"/api/models/{_ID}(?:/revision/(?P<revision>.+))?", _Handler._info),
    (("POST",), rf"/{_ID}\.git/info/lfs/objects/batch", _Handler._batch),
    (("PUT",), r"/lfs/(?P<oid>[0-9a-f]{64})", _Handler._upload),
    (("GET", "HEAD"), rf"/{_ID}/resolve/(?P<revision>[^/]+)/(?P<file>.+)", _Handler._resolve),
]
