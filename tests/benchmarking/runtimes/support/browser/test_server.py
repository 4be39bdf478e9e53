"""The server of a measured page: what it serves, and to whom."""

from __future__ import annotations

import http.client
import socket
import urllib.parse
from collections.abc import Iterator

import pytest

from benchmarking.core.errors import BenchhouseError
from benchmarking.runtimes.support.browser import browser
from benchmarking.runtimes.support.browser.browser import Site


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """Shared by all tests, since closing one takes half a second."""
    made = Site()
    yield made
    made.close()


def ask(site, path, *, method="GET", body=None, host=None):
    """Status, headers and body of a request whose path is sent as it is."""
    connection = http.client.HTTPConnection(site.host, timeout=10)
    connection.putrequest(method, urllib.parse.quote(path, safe="/%"), skip_host=True)
    connection.putheader("Host", host or site.host)
    if body is not None:
        connection.putheader("Content-Length", str(len(body)))
    connection.endheaders(body)
    response = connection.getresponse()
    content = response.read()
    connection.close()
    return response.status, dict(response.getheaders()), content


def path_of(site, name):
    return site.url.removeprefix(f"http://{site.host}") + name


def test_only_this_machine_reaches_it(site):
    assert site.host.startswith("127.0.0.1:")
    assert site.url.startswith(f"http://{site.host}/")


def test_files_and_bytes_are_served_completely(site, tmp_path):
    (tmp_path / "model.onnx").write_bytes(bytes(range(256)) * 5000)
    site.put("build/model.onnx", tmp_path / "model.onnx")
    site.put("in/0", b"\x01\x02\x03")
    status, headers, content = ask(site, path_of(site, "build/model.onnx"))
    assert (status, content) == (200, bytes(range(256)) * 5000)
    assert headers["Content-Length"] == "1280000"
    assert ask(site, path_of(site, "in/0"))[2] == b"\x01\x02\x03"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("page.html", "text/html; charset=utf-8"),
        ("page.js", "text/javascript; charset=utf-8"),
        ("ort/ort.wasm.bundle.min.mjs", "text/javascript; charset=utf-8"),
        ("ort/ort-wasm-simd-threaded.wasm", "application/wasm"),
        ("build/model.onnx", "application/octet-stream"),
        ("in/0", "application/octet-stream"),
    ],
)
def test_content_has_the_media_type_that_browsers_require(site, name, kind):
    site.put(name, b"x")
    assert ask(site, path_of(site, name))[1]["Content-Type"] == kind


def test_every_answer_isolates_the_page(site):
    site.put("page.html", b"<!doctype html>")
    for path in (path_of(site, "page.html"), path_of(site, "absent")):
        headers = ask(site, path)[1]
        assert headers["Cross-Origin-Opener-Policy"] == "same-origin"
        assert headers["Cross-Origin-Embedder-Policy"] == "require-corp"
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"


@pytest.mark.parametrize(
    "name", ["absent", "../secret.txt", "ort/../../secret.txt", "%2e%2e/secret.txt", ".", "", "//"]
)
def test_a_name_without_content_is_not_found(site, tmp_path, monkeypatch, name):
    (tmp_path / "site").mkdir()
    (tmp_path / "secret.txt").write_text("secret")
    monkeypatch.chdir(tmp_path / "site")
    site.put("page.html", b"x")
    status, _, content = ask(site, path_of(site, name))
    assert (status, content) == (404, b"")


def test_request_without_the_secret_is_not_found(site):
    site.put("page.html", b"x")
    for path in (
        "/",
        "/page.html",
        "/other/page.html",
        "page.html",
        "/é/page.html",
        path_of(site, "")[:-2] + "/page.html",
    ):
        assert ask(site, path)[0] == 404


def test_request_with_another_host_name_is_refused(site):
    site.put("page.html", b"x")
    assert ask(site, path_of(site, "page.html"), host="evil.example:80")[0] == 404
    site.expect("out/0")
    assert ask(site, path_of(site, "out/0"), method="POST", body=b"x", host="evil.example")[0] == 404


def test_a_removed_name_is_not_served(site):
    site.put("in/0", b"x")
    site.remove("in/0")
    assert ask(site, path_of(site, "in/0"))[0] == 404


def test_posted_array_is_returned_once(site):
    site.expect("out/0")
    assert ask(site, path_of(site, "out/0"), method="POST", body=b"\x00\xff")[0] == 204
    assert site.take("out/0") == b"\x00\xff"
    with pytest.raises(BenchhouseError, match="the page did not send out/0"):
        site.take("out/0")
    assert ask(site, path_of(site, "out/0"), method="POST", body=b"again")[0] == 404


def test_empty_array_is_served(site):
    site.expect("out/0")
    assert ask(site, path_of(site, "out/0"), method="POST", body=b"")[0] == 204
    assert site.take("out/0") == b""


def test_an_unexpected_post_is_refused(site):
    site.put("page.html", b"x")
    assert ask(site, path_of(site, "page.html"), method="POST", body=b"y")[0] == 404
    assert ask(site, path_of(site, "page.html"))[2] == b"x"
    with pytest.raises(BenchhouseError, match="did not send out/1"):
        site.take("out/1")


def test_two_sites_have_two_secrets_and_a_closed_one_does_not_answer(site):
    other = Site()
    assert other.url.rsplit("/", 2)[1] != site.url.rsplit("/", 2)[1]
    other.close()
    with pytest.raises(OSError, match=r"."):
        ask(other, "/")


def raw(site, data):
    """The response to raw bytes, until the server ends the connection."""
    address, port = site.host.split(":")
    with socket.create_connection((address, int(port)), timeout=10) as connection:
        connection.sendall(data)
        return b"".join(iter(lambda: connection.recv(1 << 16), b""))


def post(site, path, *, length, host=None):
    return f"POST {path} HTTP/1.1\r\nHost: {host or site.host}\r\nContent-Length: {length}\r\n\r\n".encode()


@pytest.mark.parametrize("path", ["/wrong/out/0", "/out/0", "/"])
def test_body_without_the_secret_is_refused_unread(site, path):
    site.expect("out/0")
    assert raw(site, post(site, path, length=1 << 30)).startswith(b"HTTP/1.1 404 ")


def test_body_for_wrong_host_or_name_is_refused_unread(site):
    site.expect("out/0")
    assert raw(site, post(site, path_of(site, "out/0"), length=99, host="evil.example")).startswith(b"HTTP/1.1 404 ")
    assert raw(site, post(site, path_of(site, "out/9"), length=99)).startswith(b"HTTP/1.1 404 ")


@pytest.mark.parametrize("length", [(4 << 30) + 1, "9" * 5000, "9" * 20])
def test_oversized_body_is_refused_unread(site, length):
    site.expect("out/0")
    assert raw(site, post(site, path_of(site, "out/0"), length=length)).startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize("length", ["-1", "1_0", "\u0661", "", "0x10"])
def test_non_numeric_length_is_refused(site, length):
    site.expect("out/0")
    assert raw(site, post(site, path_of(site, "out/0"), length=length)).startswith(b"HTTP/1.1 404 ")


def test_headers_beyond_any_browsers_are_refused(site):
    site.put("page.html", b"x")
    data = f"GET {path_of(site, 'page.html')} HTTP/1.1\r\nHost: {site.host}\r\nX: {'y' * 20_000}\r\n\r\n".encode()
    assert raw(site, data).startswith(b"HTTP/1.1 404 ")


def test_endless_request_is_disconnected(monkeypatch):
    monkeypatch.setattr(browser, "REQUEST_LIMIT_S", 0.2)
    site = Site()
    try:
        assert raw(site, b"GET /") == b""
    finally:
        site.close()


def test_more_connections_than_a_browser_opens_are_closed_unread(monkeypatch):
    monkeypatch.setattr(browser, "MAX_CONNECTIONS", 1)
    site = Site()
    address, port = site.host.split(":")
    try:
        with socket.create_connection((address, int(port)), timeout=10) as first:
            first.sendall(b"GET /")
            assert raw(site, b"") == b""
    finally:
        site.close()
