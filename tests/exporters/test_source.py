"""Fetching from the Hub, against a stand-in that speaks the Hub's protocol on the loopback address."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import huggingface_hub.constants
import huggingface_hub.file_download
import pytest

from onnxport.exporters.errors import SourceError
from onnxport.exporters.hub_options import HubOptions
from onnxport.exporters.source import find_folder, hash_weights, weight_files

COMMIT = "0123456789abcdef0123456789abcdef01234567"
REPO = "team/tiny-bert"
NOT_WANTED = {"tf_model.h5", "pytorch_model.bin"}


class Hub(ThreadingHTTPServer):
    """Serves one repository: its listing, and its files by HEAD and GET."""

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.folder = folder
        self.asked: list[str] = []
        self.tokens: set[str | None] = set()


class _Handler(BaseHTTPRequestHandler):
    server: Hub

    def do_GET(self) -> None:
        self._answer(send_body=True)

    def do_HEAD(self) -> None:
        self._answer(send_body=False)

    def _answer(self, *, send_body: bool) -> None:
        path = self.path.split("?")[0]
        self.server.tokens.add(self.headers.get("Authorization"))
        root = self.server.folder
        names = sorted(p.relative_to(root).as_posix() for p in root.rglob("*") if p.is_file())
        if path in (f"/api/models/{REPO}", *(f"/api/models/{REPO}/revision/{r}" for r in ("main", "v1", COMMIT))):
            listing = {"id": REPO, "sha": COMMIT, "siblings": [{"rfilename": name} for name in names], "private": False}
            self._send(json.dumps(listing).encode(), {"Content-Type": "application/json"}, send_body=send_body)
            return
        if path == f"/api/models/{REPO}/tree/{COMMIT}":
            tree = [{"type": "file", "path": n, "oid": COMMIT, "size": (root / n).stat().st_size} for n in names]
            self._send(json.dumps(tree).encode(), {"Content-Type": "application/json"}, send_body=send_body)
            return
        for name in names:
            if path.startswith(f"/{REPO}/resolve/") and path.endswith("/" + name):
                body = (self.server.folder / name).read_bytes()
                self.server.asked.append(name)
                etag = hashlib.sha256(body).hexdigest()
                self._send(body, {"ETag": f'"{etag}"', "X-Repo-Commit": COMMIT}, send_body=send_body)
                return
        self.send_response(404)
        self.send_header("X-Error-Code", "RepoNotFound")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _send(self, body: bytes, headers: dict[str, str], *, send_body: bool) -> None:
        self.send_response(200)
        for key, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(key, value)
        self.end_headers()
        if send_body:
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


def point_at(monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    """What HF_ENDPOINT does when huggingface_hub is imported, for a process that has imported it already."""
    constants = huggingface_hub.constants
    template = endpoint + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "ENDPOINT", endpoint)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    # huggingface_hub below 1.0 keeps a name of its own for the template where it downloads.
    monkeypatch.setattr(huggingface_hub.file_download, "HUGGINGFACE_CO_URL_TEMPLATE", template, raising=False)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)


@pytest.fixture
def hub(
    make_checkpoint: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Hub, HubOptions]]:
    folder = tmp_path / "repository"
    folder.mkdir()
    for file in make_checkpoint("bert").iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    for name in NOT_WANTED:
        (folder / name).write_bytes(b"not wanted")
    server = Hub(folder)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    point_at(monkeypatch, f"http://127.0.0.1:{server.server_port}")
    yield server, HubOptions(cache_dir=tmp_path / "cache")
    server.shutdown()
    server.server_close()


def test_fetches_settings_and_safetensors_only(hub: tuple[Hub, HubOptions]) -> None:
    server, options = hub
    folder = find_folder(REPO, options)
    assert folder.label == REPO
    assert folder.revision == COMMIT
    fetched = {file.name for file in folder.path.iterdir()}
    assert fetched >= {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    assert fetched == {file.name for file in server.folder.iterdir()} - NOT_WANTED
    assert hash_weights(folder.path) == hashlib.sha256((server.folder / "model.safetensors").read_bytes()).hexdigest()


def test_the_hash_of_a_sharded_checkpoint_covers_every_shard_and_its_name(tmp_path: Path) -> None:
    shards = {"model-1-of-2.safetensors": b"one", "model-2-of-2.safetensors": b"two"}
    index = {"weight_map": {"a": "model-1-of-2.safetensors", "b": "model-2-of-2.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    (tmp_path / "other.safetensors").write_bytes(b"no shard")
    for name, content in shards.items():
        (tmp_path / name).write_bytes(content)
    lines = "".join(f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in shards.items())
    whole = hash_weights(tmp_path)
    assert whole == hashlib.sha256(lines.encode()).hexdigest()
    (tmp_path / "model-2-of-2.safetensors").write_bytes(b"too")
    assert hash_weights(tmp_path) != whole


def test_offline_uses_the_cache_and_nothing_else(hub: tuple[Hub, HubOptions]) -> None:
    server, options = hub
    offline = HubOptions(cache_dir=options.cache_dir, offline=True)
    with pytest.raises(SourceError, match=r"neither a local folder nor in the local cache \(offline\)"):
        find_folder(REPO, offline)
    fetched = find_folder(REPO, options)
    server.asked.clear()
    assert find_folder(REPO, offline) == fetched
    assert server.asked == []


def test_a_checkpoint_without_safetensors_falls_back_to_bin(hub: tuple[Hub, HubOptions]) -> None:
    server, options = hub
    (server.folder / "model.safetensors").unlink()
    assert [file.name for file in weight_files(find_folder(REPO, options).path)] == ["pytorch_model.bin"]


def test_revision_and_token_are_passed_on(hub: tuple[Hub, HubOptions]) -> None:
    server, options = hub
    find_folder(REPO, HubOptions(cache_dir=options.cache_dir, revision="v1", token="hf_secret"))
    assert "Bearer hf_secret" in server.tokens


def test_an_unknown_repository(hub: tuple[Hub, HubOptions]) -> None:
    _, options = hub
    with pytest.raises(SourceError, match="cannot fetch team/absent from the Hub"):
        find_folder("team/absent", options)


def test_an_unreachable_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    point_at(monkeypatch, "http://127.0.0.1:9")
    with pytest.raises(SourceError, match="the Hub cannot be reached"):
        find_folder(REPO, HubOptions(cache_dir=tmp_path))
