"""The server a page is measured on: what it serves, to whom, and nothing else."""

import http.client
import urllib.parse

import pytest

from benchmarking.core.errors import BenchhouseError
from benchmarking.runtimes.support.browser.page import Site, content_type


@pytest.fixture(scope="module")
def site():
    """One for all: to close one takes half a second."""
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


def test_files_and_bytes_are_served_whole(site, tmp_path):
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
def test_content_has_the_type_that_browsers_insist_on(site, name, kind):
    site.put(name, b"x")
    assert content_type(name) == kind
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
def test_what_was_not_put_up_is_not_there(site, tmp_path, monkeypatch, name):
    (tmp_path / "site").mkdir()
    (tmp_path / "secret.txt").write_text("secret")
    monkeypatch.chdir(tmp_path / "site")
    site.put("page.html", b"x")
    status, _, content = ask(site, path_of(site, name))
    assert (status, content) == (404, b"")


def test_without_the_secret_nothing_is_there(site):
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


def test_another_name_for_this_address_gets_nothing(site):
    site.put("page.html", b"x")
    assert ask(site, path_of(site, "page.html"), host="evil.example:80")[0] == 404
    site.expect("out/0")
    assert ask(site, path_of(site, "out/0"), method="POST", body=b"x", host="evil.example")[0] == 404


def test_what_is_removed_is_served_no_more(site):
    site.put("in/0", b"x")
    site.remove("in/0")
    assert ask(site, path_of(site, "in/0"))[0] == 404


def test_what_is_expected_is_taken_once(site):
    site.expect("out/0")
    assert ask(site, path_of(site, "out/0"), method="POST", body=b"\x00\xff")[0] == 204
    assert site.take("out/0") == b"\x00\xff"
    with pytest.raises(BenchhouseError, match="the page did not send out/0"):
        site.take("out/0")
    assert ask(site, path_of(site, "out/0"), method="POST", body=b"again")[0] == 404


def test_an_empty_array_is_an_array(site):
    site.expect("out/0")
    assert ask(site, path_of(site, "out/0"), method="POST", body=b"")[0] == 204
    assert site.take("out/0") == b""


def test_what_is_not_expected_is_refused(site):
    site.put("page.html", b"x")
    assert ask(site, path_of(site, "page.html"), method="POST", body=b"y")[0] == 404
    assert ask(site, path_of(site, "page.html"))[2] == b"x"
    with pytest.raises(BenchhouseError, match="did not send out/1"):
        site.take("out/1")


def test_two_sites_have_two_secrets_and_a_closed_one_answers_no_more(site):
    other = Site()
    assert other.url.rsplit("/", 2)[1] != site.url.rsplit("/", 2)[1]
    other.close()
    with pytest.raises(OSError, match=r"."):
        ask(other, "/")
