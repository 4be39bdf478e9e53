"""ONNX Runtime Web's files from a registry, a cache or a folder, with a pinned checksum."""

from __future__ import annotations

import base64
import hashlib
import http.client
import http.server
import io
import sys
import tarfile
import threading
from collections.abc import Iterator

import pytest

from benchmarking.builds.store import BuildStore
from benchmarking.core.errors import BenchhouseError
from benchmarking.runtimes.support.browser import page as library

FILES = {
    "package/dist/ort.wasm.bundle.min.mjs": b"export {}",
    "package/dist/ort-wasm-simd-threaded.wasm": b"\0asm",
    "package/dist/ort-wasm-simd-threaded.mjs": b"export default 1",
    "package/dist/ort.wasm.bundle.min.mjs.map": b"{}",
    "package/dist/ort.all.js": b"var ort",
    "package/lib/ort-wasm-simd-threaded.wasm": b"elsewhere",
    "package/dist/../../escaped.wasm": b"evil",
    "/tmp/absolute.wasm": b"evil",
    "package/package.json": b"{}",
}
KEPT = ["ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm", "ort.wasm.bundle.min.mjs"]


@pytest.fixture
def tarball(monkeypatch: pytest.MonkeyPatch) -> bytes:
    """A package whose hash replaces the pinned one; a link in it points outside."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in FILES.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        link = tarfile.TarInfo("package/dist/link.wasm")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    content = packed.getvalue()
    digest = base64.b64encode(hashlib.sha512(content).digest()).decode()
    monkeypatch.setattr(library, "INTEGRITY", f"sha512-{digest}")
    return content


@pytest.fixture
def without_npm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "program", lambda name: None)
    monkeypatch.delenv("BENCHHOUSE_ORT_WEB_DIR", raising=False)


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch, without_npm: None) -> Iterator[dict[str, bytes]]:
    """A registry on loopback with `content` by path."""
    content = {}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200 if self.path in content else 404)
            self.end_headers()
            self.wfile.write(content.get(self.path, b""))

        def log_message(self, *_):
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("npm_config_registry", f"http://127.0.0.1:{server.server_address[1]}/npm/")
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    yield content
    server.shutdown()
    server.server_close()


def test_only_files_that_pages_load_are_unpacked_and_nothing_leaves_the_folder(tarball, tmp_path):
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    assert library.unpack(tarball, folder) == KEPT
    assert sorted(path.name for path in folder.iterdir()) == KEPT
    assert (folder / "ort-wasm-simd-threaded.wasm").read_bytes() == b"\0asm"
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["b"]


def test_checksum_mismatch_is_refused_before_unpacking(tarball, tmp_path):
    with pytest.raises(BenchhouseError, match=r"checksum mismatch for .*got sha512-"):
        library.unpack(tarball + b"\0", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_registry_is_asked_once_and_then_the_cache(registry, tarball, tmp_path):
    registry[f"/npm/onnxruntime-web/-/onnxruntime-web-{library.VERSION}.tgz"] = tarball
    store = BuildStore(tmp_path)
    assert library.ensure_library(store, "if_needed")["is_new"] is True
    registry.clear()
    assert library.ensure_library(store, "if_needed")["is_new"] is False
    found = library.find_library(store)
    assert (found.version, list(found.files())) == (library.VERSION, KEPT)
    assert found.file("ort-wasm-simd-threaded.mjs").read_bytes() == b"export default 1"
    assert found.source == f"npm:onnxruntime-web@{library.VERSION} {library.INTEGRITY}"


def test_a_registry_without_the_package_is_an_error_with_advice(registry, tmp_path):
    with pytest.raises(BenchhouseError, match=r"cannot fetch .* \(http://127.*/npm/.*: Not Found\)") as caught:
        library.ensure_library(BuildStore(tmp_path), "if_needed")
    assert "BENCHHOUSE_ORT_WEB_DIR" in str(caught.value)
    assert not list(tmp_path.rglob("*.mjs"))


def test_an_unreachable_registry_is_a_reason(without_npm, monkeypatch, tmp_path):
    monkeypatch.setenv("npm_config_registry", "http://127.0.0.1:9/")
    with pytest.raises(BenchhouseError, match="cannot fetch"):
        library.ensure_library(BuildStore(tmp_path), "if_needed")


def test_registry_without_http_address_is_not_opened(without_npm, monkeypatch, tmp_path):
    monkeypatch.setenv("npm_config_registry", "file:///etc")
    with pytest.raises(BenchhouseError, match="the registry file:///etc is not an HTTP address"):
        library.ensure_library(BuildStore(tmp_path), "if_needed")


@pytest.mark.parametrize("error", [http.client.BadStatusLine("x"), ConnectionResetError(104, "reset")])
def test_interrupted_registry_download_is_one_line(without_npm, monkeypatch, tmp_path, error):
    def urlopen(*args, **kwargs):
        raise error

    monkeypatch.setattr(library.urllib.request, "urlopen", urlopen)
    with pytest.raises(BenchhouseError, match="cannot fetch onnxruntime-web"):
        library.ensure_library(BuildStore(tmp_path), "if_needed")


@pytest.mark.skipif(sys.platform == "win32", reason="npm is played by a shell script")
def test_npm_is_used_if_installed(monkeypatch, tarball, tmp_path):
    (tmp_path / "packed.tgz").write_bytes(tarball)
    npm = tmp_path / "npm"
    npm.write_text(
        f'#!/bin/sh\n[ "$1" = pack ] && [ "$2" = onnxruntime-web@{library.VERSION} ] || exit 9\n'
        f'cp {tmp_path}/packed.tgz "$4"/a.tgz\n'
    )
    npm.chmod(0o755)
    monkeypatch.delenv("BENCHHOUSE_ORT_WEB_DIR", raising=False)
    monkeypatch.setattr(library, "program", lambda name: str(npm))
    assert library.ensure_library(BuildStore(tmp_path / "cache"), "if_needed")["is_new"] is True


@pytest.mark.skipif(sys.platform == "win32", reason="npm is played by a shell script")
def test_an_error_of_npm_is_the_reason(monkeypatch, tmp_path):
    npm = tmp_path / "npm"
    npm.write_text("#!/bin/sh\necho 'npm error code E404' >&2\necho 'npm error more' >&2\nexit 1\n")
    npm.chmod(0o755)
    monkeypatch.delenv("BENCHHOUSE_ORT_WEB_DIR", raising=False)
    monkeypatch.setattr(library, "program", lambda name: str(npm))
    with pytest.raises(BenchhouseError, match=r"cannot fetch .* \(npm pack: npm error code E404\)"):
        library.ensure_library(BuildStore(tmp_path / "cache"), "if_needed")


def test_library_folder_can_be_configured(monkeypatch, tmp_path):
    dist = tmp_path / "package" / "dist"
    dist.mkdir(parents=True)
    (dist / "ort.wasm.bundle.min.mjs").write_text("export {}")
    (tmp_path / "package" / "package.json").write_text('{"version": "1.29.0"}')
    for given in (dist.parent, dist):
        monkeypatch.setenv("BENCHHOUSE_ORT_WEB_DIR", str(given))
        assert library.ensure_library(BuildStore(tmp_path / "cache"), "never") == {
            "version": "1.29.0",
            "source": str(dist),
        }
    with pytest.raises(BenchhouseError, match=r"has no ort\.webgpu\.bundle\.min\.mjs"):
        library.find_library(BuildStore(tmp_path)).file("ort.webgpu.bundle.min.mjs")


def test_a_missing_named_folder_is_an_error(monkeypatch, tmp_path):
    monkeypatch.setenv("BENCHHOUSE_ORT_WEB_DIR", str(tmp_path / "absent"))
    with pytest.raises(BenchhouseError, match=r"BENCHHOUSE_ORT_WEB_DIR names .*absent, which is not a folder"):
        library.find_library(BuildStore(tmp_path))


def test_a_library_missing_from_the_cache_is_an_error(without_npm, tmp_path):
    with pytest.raises(
        BenchhouseError, match=r"onnxruntime-web .* is not in .*: run once on wasm or webgpu to fetch it"
    ):
        library.find_library(BuildStore(tmp_path))
