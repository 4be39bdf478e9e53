"""Notes and triage from pages: stored like those of commands, and accepted only from this server's pages."""

from __future__ import annotations

import dataclasses
import re
import shutil
from urllib.parse import urlencode

import anyio
import pytest

from benchmarking.core.live_status import LiveSnapshot
from db.analysis.annotations import list_annotations
from db.analysis.gate.alerts import list_alerts
from db.analysis.selection import EVERYTHING
from db.warehouse import Warehouse
from tests.helpers.databases import holding
from visualize.pages import snapshot
from visualize.pages.server import FORM, FORM_TOKEN, MOST_FORM_BYTES, Access, application
from visualize.pages.snapshot import Snapshots

HERE = "http://localhost:8050"
SELECTION = "model=bert-base-uncased,runtime=onnxruntime"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    status: int
    location: str
    text: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The server's application, called without a socket."""

    app: object
    path: str

    def ask(self, path, *, method="GET", body=b"", **headers) -> Answer:
        sent: list[dict] = []
        where, _, query = path.partition("?")
        named = {"host": "localhost:8050", **{name.replace("_", "-").lower(): text for name, text in headers.items()}}
        scope = {
            "type": "http",
            "method": method,
            "path": where,
            "raw_path": where.encode(),
            "scheme": "http",
            "query_string": query.encode(),
            "http_version": "1.1",
            "root_path": "",
            "client": ("::1", 1),
            "headers": [(name.encode(), text.encode()) for name, text in named.items()],
            "server": ("::1", 8050),
        }

        async def receive():
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message):
            sent.append(message)

        anyio.run(self.app, scope, receive, send)
        location = dict(sent[0]["headers"]).get(b"location", b"").decode()
        content = b"".join(message.get("body", b"") for message in sent[1:])
        return Answer(status=sent[0]["status"], location=location, text=content.decode())

    def post(self, path, fields, **headers) -> Answer:
        given = {"origin": HERE, "content-type": FORM, **headers}
        return self.ask(path, method="POST", body=urlencode(fields).encode(), **given)

    def form(self) -> dict[str, str]:
        """The fields that each form of the page of the series has."""
        text = self.ask(f"/trends?{urlencode({'selection': SELECTION})}").text
        return dict(re.findall(r'type="hidden" name="(form_token|selection|series)" value="([^"]+)"', text))

    def targets(self) -> list[str]:
        """The ids of the series and of its runs, the newest first."""
        text = self.ask(f"/trends?{urlencode({'selection': SELECTION})}").text
        return re.findall(r'<option value="([^"]+)">(?:the whole series|run of)', text)

    def stored(self):
        """Notes and triages in the user's file."""
        with Warehouse.open(self.path, read_only=True) as warehouse:
            rows = list_alerts(warehouse, EVERYTHING)
            return [one.note for one in list_annotations(warehouse)], [(row["triage"], row["note"]) for row in rows]


@pytest.fixture(scope="module")
def path(database, tmp_path_factory):
    return shutil.copy(database, tmp_path_factory.mktemp("actions") / "own.duckdb")


def nothing_runs():
    return LiveSnapshot(at_s=0.0, running=(), ended=(), ignored=())


@pytest.fixture(scope="module")
def site(path):
    snapshots = Snapshots(path)
    yield Site(app=application(snapshots, Access(), nothing_runs), path=path)
    snapshots.close()


def test_an_alert_is_raised_and_triaged_from_the_page(site):
    form = site.form()
    before = site.ask(f"/trends?{urlencode({'selection': SELECTION})}").text
    assert "1 confirmed regression without an alert." in before
    raised = site.post("/trends/alerts", {**form, "of": site.targets()[0]})
    assert (raised.status, raised.location.partition("#")[2]) == (303, "alerts")
    page = site.ask(raised.location.partition("#")[0])
    assert "without an alert" not in page.text
    overview = site.ask("/").text
    assert "Open alerts" in overview
    assert re.search(r"b1 s32</td>\s*<td[^>]*>Latency per call, median \(ms\)</td>", overview)
    alert = re.search(r'name="alert" value="([^"]+)"', page.text)[1]
    done = site.post("/trends/triage", {**form, "alert": alert, "triage": "noise", "note": "a <b>backup</b> ran"})
    assert done.status == 303
    assert "<b>noise</b>. a &lt;b&gt;backup&lt;/b&gt; ran" in site.ask(done.location.partition("#")[0]).text
    assert site.stored()[1] == [("noise", "a <b>backup</b> ran")]


def test_a_note_about_a_run_is_listed_and_marked_in_the_chart(site):
    fields = {"about": site.targets()[1], "note": "new fan </script>", "author": "mira"}
    done = site.post("/trends/note", {**site.form(), **fields})
    assert (done.status, done.location.partition("#")[2]) == (303, "notes")
    shown = site.ask(done.location.partition("#")[0]).text
    assert "new fan &lt;/script&gt;" in shown
    assert "mira, 20" in shown
    assert "Marks: A: new fan &lt;/script&gt;." in shown
    assert '"colour": "ink", "text": "A"' in shown
    assert site.stored()[0] == ["new fan </script>"]


NOTE = {"about": "ffffffff", "note": "a note"}


@pytest.mark.parametrize(
    ("where", "fields", "headers", "status", "expected"),
    [
        ("/trends/note", NOTE, {"origin": "https://evil.example"}, 403, "from this server's own pages only"),
        ("/trends/note", NOTE, {"origin": "null"}, 403, "from this server's own pages only"),
        ("/trends/note", NOTE, {"origin": f"{HERE}.evil.example"}, 403, "from this server's own pages only"),
        ("/trends/note", NOTE, {"origin": ""}, 403, "from this server's own pages only"),
        ("/trends/note", NOTE, {"host": "evil.example"}, 421, "is not a name of this server"),
        ("/trends/note", NOTE, {"content-type": "text/plain"}, 400, "expected a form"),
        ("/trends/note", {**NOTE, FORM_TOKEN: "x" * 32}, {}, 403, "reload it and submit"),
        ("/trends/note", {**NOTE, FORM_TOKEN: ""}, {}, 403, "reload it and submit"),
        ("/trends/note", {**NOTE, "note": "a" * MOST_FORM_BYTES}, {}, 400, "a form has at most"),
        ("/trends/note", {**NOTE, "note": " "}, {}, 400, "note is missing"),
        ("/trends/note", {**NOTE, "unknown": "1"}, {}, 400, "unknown parameter"),
        ("/trends/note", NOTE, {}, 400, "no run, result, series, machine or alert has an id"),
        ("/trends/triage", {"alert": "ffffffff", "triage": "fine"}, {}, 400, "unknown triage"),
        ("/trends/triage", {"alert": "ffffffff", "triage": "noise"}, {}, 400, "no alert has an id"),
        ("/trends/alerts", {"of": "sql:1=1"}, {}, 400, "expected the id of a series"),
    ],
)
def test_other_sites_and_invalid_forms_change_nothing(site, where, fields, headers, status, expected):
    before = site.stored()
    answer = site.post(where, {FORM_TOKEN: site.form()[FORM_TOKEN], **fields}, **headers)
    assert answer.status == status
    assert expected in answer.text
    assert site.stored() == before


@pytest.mark.parametrize(("method", "expected"), [("GET", "only POST"), ("DELETE", "only POST"), ("PUT", "only POST")])
def test_only_a_form_makes_a_change(site, method, expected):
    answer = site.ask("/trends/note", method=method)
    assert (answer.status, expected in answer.text) == (405, True)


def test_a_locked_database_is_reported_with_advice(site, monkeypatch):
    monkeypatch.setattr(snapshot, "WAIT_S", 0.1)
    fields = {**site.form(), "about": site.targets()[0], "note": "later"}
    with holding(site.path) as holder:
        answer = site.post("/trends/note", fields)
    assert answer.status == 503
    assert f"is in use by PID {holder.pid} (waited 0.1 s). Go back and submit the form again" in answer.text
    assert "Run files" not in answer.text
    assert "later" not in site.stored()[0]
    assert site.post("/trends/note", fields).status == 303
    assert "later" in site.stored()[0]


def test_read_only_pages_have_no_forms_and_refuse_them(path):
    snapshots = Snapshots(path)
    site = Site(app=application(snapshots, Access(is_read_only=True), nothing_runs), path=path)
    page = site.ask("/trends")
    assert page.status == 200
    assert 'method="post"' not in page.text
    answer = site.post("/trends/note", {FORM_TOKEN: "None", "about": "ffffffff", "note": "a"})
    assert (answer.status, answer.text) == (403, "nothing was changed: this server was started with --read-only")
    snapshots.close()
