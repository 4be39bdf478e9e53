"""The server: access checks, refusals, headers, static files, downloads."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import re
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from urllib.parse import quote

import psutil
import pytest

from tests.visualize.pages.conftest import HOSTILE, STORE, serving
from visualize.pages.elements import on_pages
from visualize.pages.site import STATIC, views
from visualize.pages.snapshot import CHECKED_S

VENDOR = STATIC / "vendor"
TOKEN = "a-token-of-enough-letters"
NAVIGATION = [view.path for view in views().values() if view.is_in_navigation]


@pytest.mark.parametrize("path", NAVIGATION)
def test_every_view_answers_without_parameters(server, path):
    answer = server.get(path)
    assert answer.status == 200
    assert "<h1>" in answer.text


@pytest.mark.parametrize("path", [*NAVIGATION, "/nowhere", "/results?batch=x", "/static/app.js", "/static/none.js"])
def test_every_response_has_the_policy(server, path):
    headers = server.get(path).headers
    assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'; style-src 'self';")
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "same-origin"


def test_the_sentence_of_a_recommendation_writes_numbers_as_its_table(server):
    found = server.get("/recommend?model=gpt2").text
    (rate,) = re.findall(r"Recommended: .*, ([0-9,]+) tokens/s at", found)
    assert "," in rate
    assert f">{rate}<" in found


@pytest.mark.parametrize(
    ("sentence", "shown"),
    [
        ("7407 tokens/s at 1234 ms, 999 MB", "7,407 tokens/s at 1,234 ms, 999 MB"),
        ("at 12345/s, 1000 requests/s", "at 12,345/s, 1,000 requests/s"),
        ("cpu_pressure (b1 s32): 2 of a_model <= 5 ms", "cpu pressure (b1 s32): 2 of a_model ≤ 5 ms"),
        ("Xeon 8481, a-1234, batch 2048, 0.1234 ms, s4096", "Xeon 8481, a-1234, batch 2048, 0.1234 ms, s4096"),
    ],
)
def test_a_sentence_of_a_command_has_separated_numbers_and_words_for_kinds_of_doubt(sentence, shown):
    assert on_pages(sentence) == shown


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8050", "127.0.0.1.evil.example", "", "[evil]"])
def test_a_foreign_host_name_is_refused(server, host):
    answer = server.get("/", Host=host)
    assert answer.status in (400, 421)
    assert "<h1>" not in answer.text


@pytest.mark.parametrize("host", ["localhost", "localhost:9", "127.0.0.1", "[::1]:8050", "LOCALHOST"])
def test_names_of_this_machine_are_accepted(server, host):
    assert server.get("/", Host=host).status == 200


@pytest.mark.parametrize("site", ["cross-site", "same-site"])  # of the same site is any other port of this machine
def test_requests_from_other_sites_compute_nothing(server, site):
    other = {"Sec_Fetch_Site": site}
    link = {**other, "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document"}
    assert server.get("/results", **other, Sec_Fetch_Mode="no-cors", Sec_Fetch_Dest="image").status == 403
    assert server.get("/results", **{**link, "Sec_Fetch_Dest": "iframe"}).status == 403
    assert server.get("/results", **link, Sec_Purpose="prefetch;prerender").status == 403
    assert server.get("/results", **link).status == 200


ENDLESS = "SELECT sum(a.range * b.range) FROM range(10000000) a, range(10000000) b"


@pytest.mark.parametrize(
    "path",
    [
        *("/sql?sql=SELECT%201", "/sql.csv?sql=SELECT%201", "/charts?selection=sql:TRUE", "/trends?selection=sql:TRUE"),
        *("/compare?a=runtime%3Deager&b=sql:TRUE", "/recommend?among=sql:batch_size%3D1"),
    ],
)
@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_link_of_another_site_runs_no_sql(server, path, site):
    link = {"Sec_Fetch_Site": site, "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document", "Sec_Fetch_User": "?1"}
    assert server.get(path, **link).status == 403
    assert server.get(path, Sec_Fetch_Site="none").status == 200
    assert server.get("/sql", **link).status == 200
    assert server.get("/charts?selection=runtime%3Deager", **link).status == 200


def questions():
    found = []
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):  # it has just ended
            found += [child.pid] if "db.query.questions" in " ".join(child.cmdline()) else []
    return found


def test_endless_sql_of_many_viewers_leaves_the_pages_alone_and_ends_with_their_connections(server):
    """Twelve viewers with an endless statement, who then close their windows."""
    port = int(server.url.rpartition(":")[2].strip("/"))
    request = f"GET /sql?sql={quote(ENDLESS)} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode()
    viewers = [socket.create_connection(("127.0.0.1", port)) for _ in range(12)]
    for viewer in viewers:
        viewer.sendall(request)
    deadline_s = time.monotonic() + 120
    while not questions():
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
    for _ in range(5):
        assert server.get("/results").status == 200
        assert len(questions()) <= 1
    for viewer in viewers:
        viewer.close()
    while questions():
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
    assert "<h1>" in server.get("/sql?sql=SELECT%201").text


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_only_reading_methods_are_allowed(server, method):
    assert server.get("/results", method=method).status == 405


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/results?batch=x", "batch=x: expected a whole number"),
        ("/results?batch=0", "expected a whole number from 1"),
        ("/results?nope=1", "unknown parameter 'nope'"),
        ("/results?runtimes=eager", "did you mean runtime"),
        ("/results?state=vaild", "unknown state 'vaild': did you mean valid"),
        ("/results?model=a&model=b", "model is given twice"),
        ("/results?all=yes", "expected 1, or nothing"),
        ("/compare?a=nonsense&b=latest", "is not a selection"),
        ("/compare?a=latest&b=latest&metric=latency", "unknown metric"),
        ("/compare?a=latest&b=sql:DROP+TABLE+benchmark_runs", "syntax error"),
        ("/results.csv?model=never+measured", "nothing to export"),
        ("/results.csv?sort=latency_median_ms", "unknown parameter 'sort'"),
    ],
)
def test_an_invalid_parameter_is_explained_on_the_page(server, path, expected):
    answer = server.get(path)
    assert answer.status == 400
    assert expected in answer.text.replace("&#39;", "'")
    assert "Traceback" not in answer.text


@pytest.mark.parametrize(
    "path", ["/runs/12345678-none", "/runs/x", "/runs/12345678.json", "/nowhere", "/static/../server.py", "/static/"]
)
def test_unknown_paths_are_not_found(server, path):
    answer = server.get(path)
    assert answer.status == 404
    assert "Not found" in answer.text


def test_an_unknown_result_of_a_run_is_not_found(server, run_ids):
    assert server.get(f"/runs/{run_ids['gpt2']}?result=none").status == 404


def test_a_form_without_javascript_redirects_to_the_url_of_its_state(server):
    answer = server.get("/results?model=&runtime=eager&batch=&state=")
    assert answer.status == 303
    assert answer.headers["location"] == "/results?runtime=eager"


def test_a_hostile_name_is_escaped_on_every_page(server, run_ids):
    paths = ["/", "/results", "/compare", f"/runs/{run_ids[HOSTILE]}", f"/hardware?model={quote(HOSTILE)}"]
    for path in paths:
        text = server.get(path).text
        assert "&lt;img src=x" in text, path
        assert "<img" not in text, path
        assert text.count("<script") == text.count("<script src=") + text.count('<script type="application/json">'), (
            path
        )


def test_filters_are_bound_values(server):
    answer = server.get(f"/results?model={quote(chr(39) + ' OR TRUE --')}")
    assert answer.status == 200
    assert "No matching results" in answer.text


def test_a_downloaded_run_file_can_be_read(server, run_ids, tmp_path):
    from benchmarking.core.run_file import read_run

    answer = server.get(f"/runs/{run_ids['gpt2']}.json")
    (tmp_path / "run.json").write_bytes(answer.body)
    assert read_run(tmp_path / "run.json").run.run_id == run_ids["gpt2"]
    assert answer.headers["content-disposition"] == f'attachment; filename="run-{run_ids["gpt2"]}.json"'


def test_the_csv_has_the_filtered_results(server):
    answer = server.get("/results.csv?model=gpt2&device=cpu")
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert {(row["model_id"], row["device"]) for row in rows} == {("gpt2", "cpu")}
    assert len(rows) == 4


def test_responses_are_compressed_and_static_files_cached(server):
    page = server.get("/", Accept_Encoding="gzip")
    assert b"<h1>" in gzip.decompress(page.body)
    assert page.headers["cache-control"] == "no-cache"
    file = server.get("/static/vendor/vega.min.js", Accept_Encoding="gzip")
    assert gzip.decompress(file.body) == (VENDOR / "vega.min.js").read_bytes()
    assert "immutable" in file.headers["cache-control"]


def test_every_library_is_pinned_and_licensed():
    listed = json.loads((VENDOR / "sources.json").read_text())["files"]
    assert {path.name for path in VENDOR.glob("*.js")} == set(listed)
    for name, source in listed.items():
        assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == source["sha256"], name
        assert (VENDOR / source["licence_file"]).stat().st_size > 200


def test_20_viewers_and_a_writer_do_not_block_each_other(own_server, own_database):
    done = threading.Event()

    def view(number):
        seen = []
        while not done.is_set() or not seen:
            seen.append(own_server.get(NAVIGATION[number % 3]).status)
        return seen

    def runs():
        return int(re.search(r"<dt>runs</dt><dd>(\d+)</dd>", own_server.get("/").text)[1])

    before = runs()
    with ThreadPoolExecutor(20) as viewers:
        views_of = viewers.map(view, range(20))
        writer = subprocess.run([sys.executable, "-c", STORE, str(own_database), "2"], check=False, timeout=120)
        done.set()
        assert writer.returncode == 0
        assert {status for seen in views_of for status in seen} == {200}
    time.sleep(CHECKED_S)
    assert runs() == before + 2


def test_requests_without_the_token_are_refused(database):
    with serving(database, "--token", TOKEN) as server:
        assert server.printed.endswith(f"/?token={TOKEN}")
        assert server.get("/").status == 401
        assert server.get("/static/app.js").status == 401
        assert server.get("/?token=wrong").status == 401
        assert server.get("/", Authorization=f"Bearer {TOKEN}").status == 200
        entered = server.get(f"/results?token={TOKEN}&runtime=eager")
        assert (entered.status, entered.headers["location"]) == (303, "/results?runtime=eager")
        cookie = entered.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "samesite=strict" in cookie.lower()
        assert server.get("/", Cookie=cookie.split(";")[0]).status == 200
        assert server.get(f"//evil.example/?token={TOKEN}").headers["location"] == "/evil.example/"


def test_with_a_public_host_any_address_but_only_own_names_are_accepted(database):
    with serving(database, "--host", "0.0.0.0", "--token", TOKEN, "--host-name", "bench.example") as server:
        for host, expected in (("10.1.2.3:80", 200), ("bench.example", 200), ("evil.example", 421)):
            assert server.get("/", Host=host, Authorization=f"Bearer {TOKEN}").status == expected
