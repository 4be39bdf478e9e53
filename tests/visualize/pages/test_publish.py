"""Static sites: complete, free of host and user names, and replaced atomically."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from collections.abc import Iterator
from contextlib import closing
from html.parser import HTMLParser
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from benchmarking.core.errors import StorageError
from benchmarking.core.records import Doubt, Origin, Readings
from benchmarking.core.temporary import FOLDER
from db.analysis.gate.alerts import list_alerts
from db.analysis.selection import EVERYTHING, Selection
from db.warehouse import Warehouse
from tests.helpers.databases import write_history
from tests.helpers.load import make_load
from tests.helpers.records import make_profile, make_run
from tests.visualize.pages.conftest import HOSTILE
from visualize.pages import publish as static_site
from visualize.pages.public_copy import public_copy
from visualize.pages.publish import MARKER, MOST_BYTES, main
from visualize.pages.site import LiveSite, render, views
from visualize.pages.snapshot import Snapshots
from visualize.pages.views import overview_page

HOSTS = ("<b>hostile</b>", "build-17.acme.example", "build-17.acme.example")
"""Host names of three runs."""
PRIVATE = ("hostile", "build-17", "acme", "jdoe", "secret-project", "My Models", "testhost")

RUN_WORDS = """
SELECT host, description, model_id, to_json([
    doubts, json_keys(axes), map_keys(other_metrics), json_keys(run.runtime_mode)
])::VARCHAR AS words
FROM benchmark_results JOIN benchmark_runs AS run USING (run_id)
"""
PAGES = 18
"""Runs that have a page of the large site: those since the regression, and one of each kind."""


class Page(HTMLParser):
    """Links, ids and elements of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.elements: set[str] = set()
        self.text = path.read_text(encoding="utf-8")
        self.feed(self.text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.elements.add(tag)
        given = dict(attrs)
        self.links += [given[name] for name in ("href", "src", "action") if name in given]
        self.ids |= {given["id"]} if "id" in given else set()


def publish(folder: Path, database: Path, *arguments: str) -> int:
    return main([str(folder), *arguments, "--db-path", str(database)])


def files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def crawled(folder: Path) -> dict[str, Page]:
    """Pages reachable from the first page. Asserts that every link has a file and every fragment an element."""
    found: dict[str, Page] = {}
    waiting = ["index.html"]
    fragments: list[tuple[str, str]] = []
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        found[path] = Page(folder / path)
        for link in found[path].links:
            address = urlsplit(link)
            assert not address.scheme, link
            assert not address.netloc, link
            target = path
            if address.path:
                target = (folder / PurePosixPath(path).parent / unquote(address.path)).resolve()
                assert target.is_file(), (path, link)
                target = target.relative_to(folder.resolve()).as_posix()
            if target.endswith(".html"):
                waiting.append(target)
                fragments += [(target, address.fragment)] if address.fragment else []
    for target, fragment in fragments:
        assert fragment in found[target].ids, (target, fragment)
    return found


@pytest.fixture(scope="module")
def site(database: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site of fewer pages of each view than there could be: a page of one more series takes the same way."""
    folder = tmp_path_factory.mktemp("published") / "site"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(static_site, "MOST_PAGES", 14)
        assert publish(folder, database, "--runs", str(PAGES)) == 0
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, Page]:
    """The pages of the site."""
    return crawled(site)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse with a few runs of two machines, with private names in paths, texts, names and tags."""
    path = tmp_path_factory.mktemp("small") / "small.duckdb"
    models = ("/srv/secret-project/one/llama", "/home/jdoe/My Models/llama", "gpt2")
    with Warehouse.open(path) as warehouse:
        for number, (model, host) in enumerate(zip(models, HOSTS, strict=True)):
            started = f"2026-02-0{number + 1}T00:00:00Z"
            run = make_run(model_id=model, started_at=started, batch_sizes=(1,), iterations=9)
            given = dataclasses.replace(
                run.provenance,
                host=host,
                command=("run_hardware_benchmark", "--model-id", model, "--cache-dir=/home/jdoe/My Models/x y"),
                description="on build-17.acme.example, as /home/jdoe/notes says: 'C:\\Users\\jdoe\\a b\\c.txt'",
                tags={"machine": "build-17", "on build-17": "/srv/secret-project/tag"},
            )
            failed = dataclasses.replace(
                run.results[0], status="failed", error=f"{host}: cannot read /srv/secret-project/x.bin: denied"
            )
            warehouse.ingest(
                dataclasses.replace(run, provenance=given, results=(failed, *run.results[1:]), error=failed.error)
            )
            warehouse.ingest_profile(
                make_profile(run=dataclasses.replace(run, provenance=given, results=())), source="/srv/secret-project/p"
            )
    return path


@pytest.mark.slow
def test_every_link_has_a_file_and_every_page_is_linked(site, pages):
    made = {name for name in files(site) if name.endswith(".html")}
    assert made == set(pages)
    assert {path for path in made if "/" not in path} == {
        *(
            "index.html",
            "results.html",
            "compare.html",
            "trends.html",
            "recommend.html",
            "hardware.html",
            "profiles.html",
            "loads.html",
        )
    }
    assert sum(path.startswith("run/") for path in made) == PAGES


def test_no_page_needs_a_server(pages):
    for path, page in pages.items():
        assert page.elements.isdisjoint({"form", "input", "select", "textarea", "iframe", "base"}), path
        assert "htmx" not in page.text, path
        assert f'content="{static_site.POLICY}"'.replace("'", "&#39;") in page.text, path


def test_the_page_recommend_says_where_servers_are(pages):
    assert "The page Loads has the request rates of servers" in pages["recommend.html"].text


def test_the_overview_says_which_series_are_too_short_for_a_regression(small_site):
    text = (small_site / "index.html").read_text(encoding="utf-8")
    assert re.search(
        r"None found\. Latency per call, median \(ms\): (\d+) of \1 series cannot show one: fewer than 4 of", text
    )


def test_the_site_contains_no_hosts_users_and_folders(small_site):
    crawled(small_site)
    for path, content in files(small_site).items():
        for word in PRIVATE:
            assert word.encode() not in content, (path, word)
            assert word.replace(" ", "-").lower() not in path
    assert sum(path.startswith("profile/") for path in files(small_site)) == 3
    text = (small_site / "results.html").read_text(encoding="utf-8")
    assert "…/llama" in text
    assert "…/llama (2)" in text, "models of one name in two folders stay two models"


def test_the_site_contains_no_addresses_of_servers_and_workers(tmp_path):
    with Warehouse.open(tmp_path / "load.duckdb") as warehouse:
        for address in ("gpu-17.acme.example:8000", "192.168.7.5:8000"):
            run = make_load(rates=(1.0,))
            command = ("benchhouse", "load", "--url", f"http://{address}/v1")
            facts = {"load": {**run.results[0].extra["load"], "url": command[-1]}}
            warehouse.ingest(
                dataclasses.replace(
                    run,
                    provenance=dataclasses.replace(run.provenance, command=command, description="192 a second"),
                    environment=Readings(values={"cluster_worker": "jdoe@gpu-18.acme.example"}),
                    results=(dataclasses.replace(run.results[0], error=f"no answer of {address}", extra=facts),),
                )
            )
    assert publish(tmp_path / "site", tmp_path / "load.duckdb") == 0
    found = {path: content.decode() for path, content in files(tmp_path / "site").items() if path.endswith(".html")}
    words = ("gpu-17", "gpu-18", "acme", "192.168", "jdoe")
    assert [(path, word) for path, text in found.items() for word in words if word in text] == []
    assert any("192 a second" in text for text in found.values()), "a number of an address is no name"


def test_with_hosts_keeps_hosts_and_folders(small, tmp_path):
    assert publish(tmp_path / "site", small, "--with-hosts") == 0
    crawled(tmp_path / "site")
    text = "".join(content.decode() for path, content in files(tmp_path / "site").items() if path.endswith(".html"))
    assert "<dd>build-17.acme.example</dd>" in text
    assert "<dd>&lt;b&gt;hostile&lt;/b&gt;</dd>" in text
    assert "<b>hostile" not in text
    assert "/srv/secret-project/one/llama" in text


def test_a_host_named_like_a_record_field_changes_no_record(tmp_path):
    with Warehouse.open(tmp_path / "odd.duckdb") as warehouse:
        for name in ("cpu", "results", "latency", "measure", "eager", "bert-base-uncased"):
            run = make_run(batch_sizes=(1,), iterations=9)
            warehouse.ingest(dataclasses.replace(run, provenance=dataclasses.replace(run.provenance, host=name)))
    assert publish(tmp_path / "site", tmp_path / "odd.duckdb", "--runs", "1") == 0
    (page,) = (tmp_path / "site" / "run").glob("*.html")
    text = page.read_text(encoding="utf-8")
    assert "bert-base-uncased on Test CPU" in text
    assert "<dd>eager (attention=sdpa)</dd>" in text
    assert "medians of 3 launches differ by" in text


def test_a_host_renames_no_kind_of_doubt_axis_setting_or_metric_with_its_name_in_it(tmp_path):
    """Nor does the word for a host that an imported file does not name."""
    kept = ("time_zone_unknown", "engine_not_stated", "input_tokens_mean", "input_format", "p25_input_ms")
    with Warehouse.open(tmp_path / "words.duckdb") as warehouse:
        for host in ("unknown", "time", "engine", "input"):
            run = make_run(batch_sizes=(1,), iterations=9, model_id=f"unknown-{host}", axes={kept[2]: (64.0,)})
            (result, *_) = run.results
            doubts = tuple(Doubt(kind=kind, severity="info") for kind in kept[:2])
            found = dataclasses.replace(result, doubts=doubts, metrics={**result.metrics, kept[4]: 3.0})
            cell = dataclasses.replace(run.cell, runtime_mode={**run.cell.runtime_mode, kept[3]: "x"})
            given = dataclasses.replace(run.provenance, host=host, description=f"measured by {host}")
            origin = Origin(format="a-tool", definition="a-tool")
            warehouse.ingest(dataclasses.replace(run, provenance=given, cell=cell, results=(found,), origin=origin))
    with (
        closing(Snapshots(tmp_path / "words.duckdb")) as snapshots,
        snapshots.reading() as data,
        public_copy(data, EVERYTHING, "x", with_hosts=False) as copy,
    ):
        run, *others = sorted(copy.warehouse.query(RUN_WORDS).dicts(), key=lambda row: row["host"], reverse=True)
    assert (run["host"], run["description"], run["model_id"]) == ("unknown", "measured by unknown", "unknown-unknown")
    assert {(row["host"], row["description"]) for row in others} == {("", "measured by host")}
    for row in (run, *others):
        assert not [name for name in kept if f'"{name}"' not in row["words"]]


def test_the_site_says_when_files_were_imported_and_not_when_it_was_published(tmp_path):
    path = tmp_path / "imported.duckdb"
    with Warehouse.open(path) as warehouse:
        warehouse.ingest(make_run(batch_sizes=(1,), iterations=9, origin=Origin(format="a-tool", definition="a-tool")))
        with warehouse.transaction() as connection:
            connection.execute("UPDATE benchmark_runs SET ingested_at = '2026-01-05 06:07:08'")
    with (
        closing(Snapshots(path)) as snapshots,
        snapshots.reading() as data,
        public_copy(data, EVERYTHING, "x", with_hosts=False) as copy,
    ):
        (row,) = copy.warehouse.query("SELECT ingested_at::VARCHAR AS at FROM benchmark_runs").dicts()
    assert row["at"] == "2026-01-05 06:07:08"


def test_a_host_named_like_a_word_of_models_renames_no_model(tmp_path):
    with Warehouse.open(tmp_path / "models.duckdb") as warehouse:
        for model, source, host in (
            ("tiiuae/falcon-7b", "hub", "falcon.lab.example"),
            ("mistralai/Mistral-7B", "import", "falcon"),
            ("/data/falcon-40b", "local", "mistralai"),
            ("models/build-17-falcon", "local", "build-17"),
        ):
            run = make_run(model_id=model, batch_sizes=(1,), iterations=9)
            config = {**run.cell.workload.config, "model_type": "falcon"}
            workload = dataclasses.replace(run.cell.workload, source=source, config=config)
            given = dataclasses.replace(run.provenance, host=host, description=f"{model} on {host}, falcon")
            warehouse.ingest(
                dataclasses.replace(run, cell=dataclasses.replace(run.cell, workload=workload), provenance=given)
            )
    assert publish(tmp_path / "site", tmp_path / "models.duckdb") == 0
    text = "".join(content.decode() for path, content in files(tmp_path / "site").items() if path.endswith(".html"))
    for shown in ("tiiuae/falcon-7b on host, host", "mistralai/Mistral-7B on host, host", "…/falcon-40b on host, host"):
        assert shown in text
    assert "falcon.lab" not in text
    assert "host-7b" not in text
    assert "build-17" not in text


def test_a_hostile_name_is_escaped_in_every_file(site):
    for path, content in files(site).items():
        if path.endswith(".html"):
            assert b"<script>alert" not in content, path
            assert b"onerror=alert(1)>" not in content, path
    assert HOSTILE.replace("<", "&lt;").replace(">", "&gt;") in (site / "results.html").read_text(encoding="utf-8")


def test_the_same_database_gives_the_same_bytes(earlier, small, tmp_path):
    assert publish(tmp_path / "other", small, "--title", "earlier") == 0
    assert files(earlier) == files(tmp_path / "other")


def test_a_file_over_20_mb_is_refused_and_leaves_nothing(site, small, tmp_path, monkeypatch, capsys):
    assert max(map(len, files(site).values())) < MOST_BYTES == 20_000_000
    monkeypatch.setattr(static_site, "MOST_BYTES", 9000)
    assert publish(tmp_path / "site", small) == 1
    assert "exceed the limit of 0 MB per file" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_only_the_newest_runs_have_pages_and_the_others_are_counted(small, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(static_site, "SAY_EVERY_S", 0.0)
    assert publish(tmp_path / "site", small, "--runs", "2") == 0
    pages = crawled(tmp_path / "site")
    assert sum(path.startswith("run/") for path in pages) == 2
    assert all("The newest 2 of 3 runs have pages" in page.text for page in pages.values())
    *progress, end = capsys.readouterr().err.splitlines()
    assert "1 older runs have no page" in end
    assert progress[2] == "2 runs copied"
    assert re.fullmatch(r"\d+ pages written, \d+ known to be left", progress[-1])


def test_only_selected_results_are_published(database, tmp_path):
    assert publish(tmp_path / "site", database, "model=gpt2,device=cuda,batch=1", "--title", "Our <GPU>") == 0
    pages = crawled(tmp_path / "site")
    text = "".join(page.text for page in pages.values())
    assert "bert-base-uncased" not in text
    assert "b2 s128 n4" not in text
    assert "b1 s128 n4" in text
    assert "Our &lt;GPU&gt;: results up to" in text


def test_links_beyond_the_page_limit_become_text(database, tmp_path, monkeypatch):
    monkeypatch.setattr(static_site, "MOST_PAGES", 2)
    assert publish(tmp_path / "site", database, "--runs", "1") == 0
    pages = crawled(tmp_path / "site")
    assert sum(path.startswith("trends") for path in pages) == 2
    assert "None" not in [link for page in pages.values() for link in page.links]


def test_comparisons_are_prerendered(pages):
    newest = next(link for link in pages["compare.html"].links if link.startswith("compare/"))
    assert "not judged against A at 4 of 4 points" in pages[newest].text
    change = next(link for link in pages["trends.html"].links if link.startswith("compare/"))
    assert "times as long as A at 4 of 4 points" in pages[change].text


def test_aliases_and_alerts_are_published_without_their_notes(tmp_path):
    path = tmp_path / "judged.duckdb"
    runs = [make_run(model_id=name, batch_sizes=(1,), iterations=9) for name in ("/a/b/one", "two")]
    with Warehouse.open(path) as warehouse:
        warehouse.ingest_all(runs)
        with warehouse.transaction() as connection:
            sql = "SELECT series_id FROM benchmark_results WHERE result_id = ?"
            old, new = (warehouse.query(sql, [run.results[0].result_id]) for run in runs)
            connection.execute(
                "INSERT INTO series_alias VALUES (?, ?, 'jdoe said so', '2026-01-01')",
                [old.dicts()[0]["series_id"], new.dicts()[0]["series_id"]],
            )
            connection.execute(
                """INSERT INTO alerts BY NAME SELECT 'a1' AS alert_id, ? AS series_id, 'latency_median_ms' AS metric,
                'new' AS triage, 0.5 AS relative_change, 'gate' AS detector, '1' AS detector_version,
                '{}' AS parameters, now() AS created_at, now() AS updated_at, ? AS result_id, 'jdoe' AS note""",
                [new.dicts()[0]["series_id"], runs[1].results[0].result_id],
            )
    snapshots = Snapshots(path)
    with snapshots.reading() as source, public_copy(source, EVERYTHING, "x", with_hosts=False) as data:
        (alert,) = list_alerts(data.warehouse, EVERYTHING, ("new",))
        assert (alert["relative_change"], alert["note"]) == (0.5, None)
        (alias,) = data.warehouse.query("SELECT reason FROM series_alias").dicts()
        assert alias["reason"] == ""
        series = Selection.parse("model=two")
        sql = f"SELECT count(DISTINCT series_id) AS n FROM all_results WHERE NOT ({series.condition})"
        assert data.warehouse.query(sql, series.values).dicts() == [{"n": 2}]
    snapshots.close()


def test_alerts_beyond_the_list_are_counted_and_only_a_server_names_the_command_that_lists_them(tmp_path, monkeypatch):
    monkeypatch.setattr(overview_page, "FINDINGS", 1)
    monkeypatch.setattr(static_site, "MOST_PAGES", 1)
    overview = views()["overview"]
    path = tmp_path / "judged.duckdb"
    with Warehouse.open(path) as warehouse:
        warehouse.ingest_all([make_run(model_id=name, batch_sizes=(1,)) for name in ("one", "two", "three")])
        warehouse.query(
            """INSERT INTO alerts BY NAME SELECT result_id AS alert_id, series_id, 'latency_median_ms' AS metric,
            'new' AS triage, 0.5 AS relative_change, 'gate' AS detector, '1' AS detector_version, '{}' AS parameters,
            now() AS created_at, now() AS updated_at, result_id FROM benchmark_results"""
        )
    assert publish(tmp_path / "site", path) == 0
    published = (tmp_path / "site" / static_site.FIRST).read_text(encoding="utf-8")
    with closing(Snapshots(path)) as snapshots, snapshots.reading() as data:
        served = render(LiveSite(), overview, data, overview.parameters())
    assert "2 more: <code>benchhouse alert list" in served
    assert "2 more</p>" in published
    assert "benchhouse alert list" not in published


def test_the_overview_says_which_alerts_are_of_series_that_have_recovered(tmp_path):
    path = tmp_path / "judged.duckdb"
    with Warehouse.open(path) as warehouse:
        for runtime, later in (("eager", [10.1, 9.9]), ("onnxruntime", [12.1, 9.9, 11.9])):
            write_history(warehouse, [10.0] * 5 + [12.0] + later, runtime=runtime)
        warehouse.query(
            """INSERT INTO alerts BY NAME SELECT result_id AS alert_id, series_id, 'latency_median_ms' AS metric,
            'regression' AS triage, 0.2 AS relative_change, 'gate' AS detector, '1' AS detector_version,
            '{"centre": 10.0, "results": []}' AS parameters, now() AS created_at, now() AS updated_at, result_id
            FROM benchmark_results WHERE latency_median_ms = 12"""
        )
    with closing(Snapshots(path)) as snapshots, snapshots.reading() as data:
        alerts = views()["overview"].page(data, views()["overview"].parameters()).alerts.rows
    status = {row[3].text.split(" ")[0]: row[-1].text for row in alerts}
    assert status == {"eager": "regression, recovered since", "onnxruntime": "regression"}


def test_an_alert_of_a_run_without_a_page_is_text(tmp_path):
    path = tmp_path / "judged.duckdb"
    with Warehouse.open(path) as warehouse:
        write_history(warehouse, [10.0, 12.0, 10.1])
        warehouse.query(
            """INSERT INTO alerts BY NAME SELECT result_id AS alert_id, series_id, 'latency_median_ms' AS metric,
            'new' AS triage, 0.2 AS relative_change, 'gate' AS detector, '1' AS detector_version, '{}' AS parameters,
            now() AS created_at, now() AS updated_at, result_id FROM benchmark_results WHERE latency_median_ms = 12"""
        )
    assert publish(tmp_path / "site", path, "--runs", "1") == 0
    pages = crawled(tmp_path / "site")  # asserts that every link has a file
    assert any("Alerts of this series" in page.text for page in pages.values())


def test_only_charts_live_and_console_need_a_server():
    assert [view.name for view in views().values() if view.in_files is None] == ["charts", "live", "console"]


@pytest.fixture(scope="module")
def small_site(small: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("published") / "small"
    assert publish(folder, small, "--title", "earlier") == 0
    return folder


@pytest.fixture
def earlier(small_site, tmp_path) -> Iterator[Path]:
    """An earlier site, in a folder of its own."""
    folder = tmp_path / "site"
    shutil.copytree(small_site, folder)
    yield folder
    assert [path for path in tmp_path.iterdir() if FOLDER.fullmatch(path.name)] == []


def test_an_earlier_site_is_replaced_completely(earlier, small):
    assert publish(earlier, small, "model=gpt2", "--title", "later") == 0
    pages = crawled(earlier)
    assert set(pages) == {name for name in files(earlier) if name.endswith(".html")}
    assert all("<p>later: " in page.text for page in pages.values())


def test_an_interruption_leaves_the_earlier_site(earlier, small, monkeypatch):
    before = files(earlier)
    draw, drawn = static_site.render, []

    def interrupted(*arguments: Any) -> str:
        drawn.append(1)
        if len(drawn) == 3:
            raise KeyboardInterrupt
        return draw(*arguments)

    monkeypatch.setattr(static_site, "render", interrupted)
    assert publish(earlier, small) == 130
    assert files(earlier) == before


def test_another_publication_at_the_same_time_is_named_and_stays(earlier, tmp_path):
    new, old = tmp_path / "new", tmp_path / "old"
    new.mkdir()

    class Meanwhile(type(earlier)):
        def rename(self, target):
            done = super().rename(target)
            if self == earlier:  # the other command moves its site into place
                earlier.mkdir()
                (earlier / "index.html").write_text("of the other")
            return done

    with pytest.raises(StorageError, match="published by another command at the same time: try again"):
        static_site._replace(Meanwhile(earlier), new, old)
    assert (earlier / "index.html").read_text() == "of the other"


def test_a_site_with_foreign_files_is_not_replaced(earlier, small, capsys):
    (earlier / ".git").write_text("gitdir: elsewhere")
    assert publish(earlier, small) == 2
    assert "did not write and would delete: move .git elsewhere" in capsys.readouterr().err
    assert (earlier / ".git").exists()


@pytest.mark.parametrize("marker", [None, "{", "[]", json.dumps({"made_by": "another", "files": ["notes.txt"]})])
def test_a_folder_with_other_content_is_refused(small, tmp_path, capsys, marker):
    (tmp_path / "notes.txt").write_text("mine")
    if marker is not None:
        (tmp_path / MARKER).write_text(marker)
    assert publish(tmp_path, small) == 2
    assert f"is not empty and not a site from {static_site.NAME}" in capsys.readouterr().err
    assert (tmp_path / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (["file"], 2, "is a file: choose a folder for the site"),
        (["none/site"], 2, "create it, or choose another path"),
        (["site", "--db-path", "none.duckdb"], 1, "no database at none.duckdb"),
        (["site", "colour=red"], 2, "selection"),
        (["site", "model=none"], 2, "'model=none' selects nothing, so there is nothing to publish"),
        (["site", "sql:nonsense"], 2, "sql:nonsense"),
        (["site", "--runs", "0"], 2, "takes a whole number from 1 to 10000"),
        (["site", "--title", " "], 2, "takes a non-empty text"),
    ],
)
def test_a_publishing_error_is_one_line(arguments, code, expected, small, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    database = [] if "--db-path" in arguments else ["--db-path", str(small)]
    assert main([*arguments, *database]) == code
    printed = capsys.readouterr().err
    assert expected in printed
    assert printed.count("\n") == 1
    assert not (tmp_path / "site").exists()


def test_publishing_an_empty_warehouse_is_one_line(tmp_path, capsys):
    Warehouse.open(tmp_path / "empty.duckdb").close()
    assert publish(tmp_path / "site", tmp_path / "empty.duckdb") == 2
    assert f"{tmp_path}/empty.duckdb: the database is empty, so there is nothing to publish" in capsys.readouterr().err


def test_charts_are_drawn_from_disk_without_errors(browser, site):
    troubles: list[str] = []
    context = browser.new_context(viewport={"width": 1360, "height": 900})
    page = context.new_page()
    page.on("console", lambda message: troubles.append(message.text))
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("dialog", lambda dialog: (troubles.append(dialog.message), dialog.dismiss()))
    page.on("request", lambda r: None if r.url.startswith(("file:", "data:")) else troubles.append(r.url))
    drawn = 0
    for name in ("index", "results", "compare", "trends", "hardware", "recommend"):
        page.goto((site / f"{name}.html").as_uri())
        for figure in page.locator("figure.chart").all():
            figure.locator("svg.marks").first.wait_for(state="attached")
            drawn += 1
    page.get_by_role("navigation").get_by_role("link", name="Results").click()
    page.get_by_role("link", name=HOSTILE).first.click()
    assert page.get_by_role("heading", level=1).inner_text().startswith("Results")
    page.locator("tbody tr a").first.click()
    page.locator("figure.chart svg.marks").first.wait_for(state="attached")
    assert page.get_by_role("heading", level=1).inner_text() == f"{HOSTILE} on Test CPU"
    context.close()
    assert drawn >= 3
    assert troubles == []


def test_a_run_id_cannot_escape_the_site(tmp_path, monkeypatch):
    monkeypatch.setattr(static_site, "MOST_PAGES", 1)
    with Warehouse.open(tmp_path / "odd.duckdb") as warehouse:
        for name in ("../../../out", "A", "a", "x" * 300, "<b>"):
            warehouse.ingest(make_run(run_id=name, batch_sizes=(1,), iterations=9))
    assert publish(tmp_path / "deep" / "site", tmp_path / "odd.duckdb") == 2, "no folder above it"
    assert publish(tmp_path / "site", tmp_path / "odd.duckdb") == 0
    pages = {path for path in crawled(tmp_path / "site") if path.startswith("run/")}
    assert len({path.lower() for path in pages}) == 5
    assert sorted(path.name for path in tmp_path.iterdir()) == ["odd.duckdb", "site"]
