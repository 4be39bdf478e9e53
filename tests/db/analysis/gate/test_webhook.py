"""New alerts reach a real HTTP server, again after a failure, and the address is never shown."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from db.analysis.gate import webhook

SECRET = "s3cret-path"
ROW = {"alert_id": "a1", "model_id": "gpt2", "runtime": "eager", "metric": "latency_median_ms", "note": "a\nb"}


class Server(ThreadingHTTPServer):
    """Answers with the next of `answers`, then 204, and keeps what it was sent."""

    daemon_threads = True

    def __init__(self, *answers, headers=()):
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers, self.headers, self.received = list(answers), dict(headers), []
        self.address = f"http://127.0.0.1:{self.server_port}/{SECRET}"


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.received.append((self.path, self.headers["Content-Type"], json.loads(body)))
        answer = self.server.answers.pop(0) if self.server.answers else 204
        if answer == "drips":
            for _ in range(600):
                self.wfile.write(b"H")
                time.sleep(0.1)
            return
        if answer == "hangs up":
            self.connection.close()
            return
        self.send_response(answer)
        for name, value in self.server.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def serving(monkeypatch):
    servers = []

    def serve(*answers, headers=()):
        server = Server(*answers, headers=headers)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        servers.append(server)
        monkeypatch.setenv(webhook.ADDRESS, server.address)
        monkeypatch.setattr(webhook, "FIRST_WAIT_S", 0.01)
        return server

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


def sent(server, **named):
    return webhook.send(webhook.document([ROW]), server.address, first_wait_s=0.01, **named)


def test_alerts_are_posted_as_json_with_a_line_of_text(serving, capsys):
    server = serving()
    webhook.notify("benchhouse check", [ROW, ROW])
    ((path, kind, message),) = server.received
    assert (path, kind) == (f"/{SECRET}", "application/json")
    assert message["alerts"] == [ROW, ROW]
    assert message["text"] == "benchhouse: 2 new alerts: gpt2 eager latency_median_ms, gpt2 eager latency_median_ms"
    assert capsys.readouterr() == ("", "")


def test_a_name_cannot_mention_link_or_control_in_a_chat():
    name = "<!channel> @all [a](https://evil.example) www.evil.example WWW.evil.example :tada: \x1b[31m\u202e"
    text = webhook.document([{**ROW, "model_id": name}])["text"]
    assert not any(one in text for one in ("<!", "@all", "](", "://", "www.e", "WWW.e", ":tada:", "\x1b", "\u202e"))
    assert r"\x1b[31m\u202e" in text
    assert len(webhook.document([{**ROW, "model_id": "x" * 5000}])["text"]) < 300


@pytest.mark.parametrize("answers", [(500, 503), (429,), ("hangs up",)])
def test_temporary_failures_are_retried(serving, answers):
    server = serving(*answers)
    assert sent(server) is None
    assert len(server.received) == len(answers) + 1


@pytest.mark.parametrize(
    ("answers", "attempts", "said"),
    [([404], 1, "answered 404"), ([500] * 9, webhook.ATTEMPTS, "answered 500"), ([302], 1, "not followed")],
)
def test_permanent_failures_are_not_retried(serving, answers, attempts, said):
    other = serving()
    server = serving(*answers, headers={"Location": other.address})
    assert said in sent(server)
    assert (len(server.received), len(other.received)) == (attempts, 0)


def test_a_long_retry_after_is_not_waited_for(serving):
    server = serving(429, headers={"Retry-After": "3600"})
    assert sent(server) == "the server answered 429"


def test_a_slow_server_is_abandoned_at_the_limit(serving):
    server, begun = serving("drips"), time.monotonic()
    assert sent(server, limit_s=0.3) == "no answer within 0.3 s"
    assert time.monotonic() - begun < 30  # not the minute that the server takes


def test_a_failure_is_reported_without_the_address(serving, capsys):
    server = serving(*[403] * 2)
    webhook.notify("benchhouse check", [ROW])
    server.server_close()
    said = capsys.readouterr().err
    assert "benchhouse check: webhook: the server answered 403; the alerts are stored anyway" in said
    assert SECRET not in said


@pytest.mark.parametrize(
    ("address", "said"),
    [
        (f"http://example.org/{SECRET}", "is unencrypted http to another machine"),
        (f"ftp://example.org/{SECRET}", "starts with https://"),
        (f"file:///{SECRET}", "starts with https://"),
        (f"https://user:{SECRET}@example.org/", "contains a user name"),
        (f"https://example.org:{SECRET}/", "is not a URL"),
        (f"https://example.org/{SECRET}\r\nX: y", "contains a user name or a space"),
    ],
)
def test_an_unsafe_address_is_refused(monkeypatch, capsys, address, said):
    monkeypatch.setenv(webhook.ADDRESS, address)
    monkeypatch.setattr(webhook, "send", None)
    webhook.notify("benchhouse check", [ROW])
    found = capsys.readouterr().err
    assert said in found
    assert SECRET not in found


def test_https_localhost_and_allowed_http_are_accepted(monkeypatch):
    fine = ["https://example.org/x", "http://localhost:80/x", "http://127.0.0.1/x", "http://[::1]:8080/x"]
    assert [webhook.why_not_usable(one) for one in fine] == [None] * 4
    monkeypatch.setenv(webhook.ANY_SCHEME, "1")
    assert webhook.why_not_usable("http://example.org/x") is None
