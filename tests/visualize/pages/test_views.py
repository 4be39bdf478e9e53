"""Contents of views, and the limits of the SQL console."""

from __future__ import annotations

import dataclasses
import io
import json
import re
import shutil
from contextlib import closing
from pathlib import Path

import pyarrow.parquet
import pytest

from benchmarking.core.doubts import KINDS
from benchmarking.core.errors import UsageError
from benchmarking.core.live_status import LiveSnapshot
from benchmarking.core.load_doubts import HIGHEST_RATE, RATE_HIGH, RATE_LOW, SEARCHED
from benchmarking.core.metrics import CUSTOM_METRICS, DEFAULT_METRIC, METRICS
from benchmarking.core.quality import Quality, QualityValue
from benchmarking.core.records import Doubt, Origin, Samples, canonical_hash
from db.analysis.gate.alerts import OPEN, list_alerts, raise_alerts, set_triage
from db.analysis.history.changes import regressions, update_changes
from db.analysis.history.histories import newest_results
from db.analysis.selection import EVERYTHING, judged_metric
from db.importers.support.files import read_file
from db.query.questions import TimeLimitError
from db.warehouse import Warehouse
from tests.helpers.imported_files import importer_for
from tests.helpers.load import make_load
from tests.helpers.paths import FIXTURES
from tests.helpers.records import make_run
from tests.helpers.run_changes import Alter
from tests.visualize.pages.conftest import LOADED
from visualize import visualize_benchmarks
from visualize.drawing.figure import Figure
from visualize.pages import site, vega
from visualize.pages.elements import grid, point_text, text_cell
from visualize.pages.public_copy import public_copy
from visualize.pages.result_rows import launches_of, noted_doubts
from visualize.pages.site import LiveSite, NotFoundError, environment, render, views
from visualize.pages.snapshot import Snapshots
from visualize.pages.views import charts_page, console_page, profiles_page, results_page, trends_page
from visualize.report.content import report_of

pytestmark = pytest.mark.forked_children
RUNTIMES = ("eager", "onnxruntime")
"""Only the first has profiles."""
ROW = {"batch_size": 1, "sequence_length": 32, "new_tokens": None, "concurrency": 1, "axes": "{}"}


@pytest.fixture(scope="module")
def data(database):
    snapshots = Snapshots(database)
    with snapshots.reading() as found:
        yield found
    snapshots.close()


def parts_of(data, name, sql):
    """Content of a console download."""
    (download,) = [one for one in console_page.DOWNLOADS if one.name == f"console_{name}"]
    return iter(download.file(data, console_page.Statement(sql=sql)).parts)


def page_of(data, name, **given):
    view = views()[name]
    return view.page(data, site.parse(view.parameters, given.items()))


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("DELETE FROM benchmark_runs", "DELETE is not read-only"),
        ("CREATE TABLE a (b INT)", "CREATE is not read-only"),
        ("SET memory_limit = '1TB'", "SET is not read-only"),
        ("SELECT 1; SELECT 2", "expected one statement: got 2"),
        ("SELECT * FROM read_text('/etc/passwd')", "disabled by configuration"),
        ("SELECT * FROM 'https://example.com/a.csv'", "disabled by configuration"),
        ("SELECT nothing FROM benchmark_runs", "line 1, column 8"),
    ],
)
def test_the_console_reads_only_this_warehouse(data, sql, expected):
    page = page_of(data, "console", sql=sql)
    assert page.grid is None
    assert expected in page.trouble


def ticks_of(chart, name):
    """Labels of an axis of a chart's first panel: "xtext" or "ytext"."""
    (labels,) = [one["value"] for one in chart.specs[0]["params"] if one["name"] == name]
    return labels


def marks_of(chart, panel=0, kind="point"):
    """Data of the marks of a panel, without the crosses of invalid ones."""
    layers = chart.specs[panel]["layer"]
    found = [one for one in layers if one["mark"]["type"] == kind and one["mark"].get("shape") is None]
    return [row for layer in found for row in layer["data"]["values"]]


def test_console_bars_never_share_a_name(data):
    by_one = "SELECT runtime, count(*) AS n FROM all_results GROUP BY ALL"
    assert page_of(data, "console", sql=by_one).chart.title == "n by runtime"
    chart = page_of(
        data, "console", sql="SELECT * FROM (VALUES ('m', 'a', 1), ('m', 'b', 2)) t(model, runtime, n)"
    ).chart
    assert chart.title == "n by model, runtime"
    assert ticks_of(chart, "ytext") == ["m \N{MIDDLE DOT} a", "m \N{MIDDLE DOT} b"]
    assert page_of(data, "console", sql="SELECT * FROM (VALUES ('m', 1), ('m', 2)) t(model, n)").chart is None


def test_console_lines_join_rows_of_one_setup_and_end_where_there_is_no_number(data):
    sql = """SELECT * FROM (VALUES (1, 'a', 1.0), (1, 'b', 5.0), (2, 'a', 2.0), (2, 'b', NULL), (3, 'a', 3.0),
        (3, 'b', 7.0)) t(batch_size, runtime, ms)"""
    chart = page_of(data, "console", sql=sql).chart
    assert [entry.label for entry in chart.legend] == ["a", "b"]
    joined = {}
    for row in marks_of(chart, kind="line"):
        joined.setdefault(row["series"], []).append(row["y"])
    assert list(joined.values()) == [[1.0, 2.0, 3.0], [5.0], [7.0]]
    assert "for each value of runtime" in chart.caption
    assert "Without a number, so not drawn: 1 row." in chart.caption
    chart = page_of(data, "console", sql="SELECT * FROM (VALUES (1, 2), (1, 3), (2, 4)) t(batch_size, ms)").chart
    assert marks_of(chart, kind="line") == []


def test_the_default_model_to_recommend_has_results_of_calls(tmp_path):
    with Warehouse.open(tmp_path / "own.duckdb") as warehouse:
        warehouse.ingest_all([make_load(model_id="served"), make_run(batch_sizes=(1,), sequence_lengths=(32,))])
    snapshots = Snapshots(tmp_path / "own.duckdb")
    with snapshots.reading() as found:
        assert page_of(found, "recommend").model == "bert-base-uncased"
    snapshots.close()


def test_the_page_charts_has_single_points_only_where_the_files_have(tmp_path):
    single = make_run(runtime="onnxruntime", batch_sizes=(1,), sequence_lengths=(32,))
    for runs, expected in (([single], (1, 0)), ([single, make_run(sequence_lengths=(32,))], (1, 1))):
        path = tmp_path / f"{len(runs)}.duckdb"
        with Warehouse.open(path) as warehouse:
            warehouse.ingest_all(runs)
        with closing(Snapshots(path)) as snapshots, snapshots.reading() as found:
            shown = page_of(found, "charts", chart="latency_vs_batch_size")
            assert (len(shown.charts), len(shown.missing)) == expected


def test_names_with_line_ends_are_escaped_and_no_command_is_shown_that_cannot_have_the_name(tmp_path):
    odd = ("with,comma", "line\nbreak", "zero\u200bwidth")
    with Warehouse.open(tmp_path / "names.duckdb") as warehouse:
        warehouse.ingest_all([make_run(model_id=one, batch_sizes=(1,)) for one in ("plain name", *odd)])
    with closing(Snapshots(tmp_path / "names.duckdb")) as snapshots, snapshots.reading() as found:
        cards = {card.name for card in page_of(found, "overview").cards}
        commands = [page_of(found, "charts", model=one).command for one in ("plain name", *odd)]
    assert cards == {"plain name", "with,comma", "line\\nbreak", "zero\\u200bwidth"}
    assert "--model-id 'plain name'" in commands[0]
    assert commands[1:] == [None, None, None]


def test_pages_begin_with_an_imported_model_that_has_something_to_show(tmp_path):
    """Not with the one of most series, whose files state neither a latency nor a rate."""
    origin = Origin(format="llama_bench", definition="llama_bench")
    lacking = dataclasses.replace(make_run(model_id="lacking", batch_sizes=(1, 2, 4)), origin=origin)
    results = [
        dataclasses.replace(one, metrics={}, missing=dict.fromkeys(one.metrics, "not_stated"))
        for one in lacking.results
    ]
    lacking = dataclasses.replace(lacking, results=tuple(results))
    full = dataclasses.replace(make_run(model_id="full", batch_sizes=(1, 2), sequence_lengths=(32,)), origin=origin)
    with Warehouse.open(tmp_path / "imports.duckdb") as warehouse:
        warehouse.ingest_all([lacking, full])
    with closing(Snapshots(tmp_path / "imports.duckdb")) as snapshots, snapshots.reading() as found:
        assert (page_of(found, "recommend").model, page_of(found, "charts").model) == ("full", "full")
        assert page_of(found, "charts").charts


def test_a_rate_that_a_search_found_at_invalid_levels_says_so(tmp_path):
    load = make_load(rates=(1.0, 2.0))
    late = Doubt(kind="late_generator", severity="invalid", evidence={})
    first, second = load.results
    search = dataclasses.replace(
        first,
        result_id="search",
        point=dataclasses.replace(first.point, axes={}),
        metrics={**first.metrics, HIGHEST_RATE: 1.5, RATE_LOW: 1.25, RATE_HIGH: 3.0},
        extra={"load": {SEARCHED: [1.0, 16.0]}},
    )
    levels = (dataclasses.replace(first, doubts=(late,), validity="invalid"), second)
    with Warehouse.open(tmp_path / "search.duckdb") as warehouse:
        warehouse.ingest(dataclasses.replace(load, results=(*levels, search)))
    with closing(Snapshots(tmp_path / "search.duckdb")) as snapshots, snapshots.reading() as found:
        shown = page_of(found, "load", run_id=load.run_id)
        assert shown.answer == (
            "The highest rate within the limits is 1.5 requests/s (95 % interval 1.25 to 3); deploy for up to 1.25 "
            "requests/s, the lower end: at the rate itself, chance decides. But 1 of its 2 levels is invalid: see the "
            "doubts below."
        )
        listed = page_of(found, "loads").loads
        (row,) = listed.rows
        cells = dict(zip((heading.text for heading in listed.headings), row, strict=True))
        assert (cells["within limits/s"].text, cells["levels"].text, cells["state"].text) == ("1.5", "2/2", "1 invalid")
        assert cells["within limits/s"].tone == "warn"
        assert "; but 1 of its 2 levels is invalid" in cells["within limits/s"].hint
        rates = [cell.text for row in page_of(found, "run", run_id=load.run_id).results.rows for cell in row]
        assert not [text for text in rates if text.endswith("*")], "requests of a load are no calls"
        for grid in (_results_page(found).grid, page_of(found, "run", run_id=load.run_id).results):
            points = {cell.text for row in grid.rows for cell in row if "s32 n2" in cell.text}
            assert points == {
                "highest rate, s32 n2", "1 request/s, s32 n2", "2 requests/s, s32 n2",
            }  # fmt: skip


def test_sentences_keep_flags_whole_and_markup_harmless(data):
    notes = environment().from_string('{% from "parts.html" import notes %}{{ notes(lines, 1) }}')
    html = notes.render(lines=["cpu_pressure (<b>): use --cpu-list.", "second", "third"])
    assert '<li>cpu pressure (&lt;b&gt;): use <span class="flag">--cpu-list</span>.</li>' in html
    assert "<summary>2 more notes</summary>" in html
    assert "--launches</span>" in environment().from_string(
        '{% from "parts.html" import doubt_list %}{{ doubt_list(doubts) }}'
    ).render(doubts=noted_doubts([{**ROW, "extra": json.dumps({"doubts": [{"kind": "container"}]})}]))


def test_filters_and_verdicts_are_in_words_and_names_keep_their_case(data):
    doubts = next(one for one in page_of(data, "results", doubt="very_noisy").filters if one.name == "doubt")
    assert doubts.options["very_noisy"] == "very noisy"
    shown = page_of(data, "compare", a="model=bert-base-uncased,runtime=eager", b="runtime=onnxruntime").compared
    assert shown.summary.startswith("onnxruntime is ")
    (spec,) = shown.chart.specs
    assert spec["layer"][0]["encoding"]["x"]["title"] == [
        "Latency per call, median",
        "change from A to B, lower is better",
    ]
    assert page_of(data, "compare", a="model=nope", b="model=nope").compared.summary == "Nothing to compare"


def test_the_points_of_a_load_are_in_the_order_of_their_rates(tmp_path):
    load = make_load(rates=(10.0, 2.0, 2.5))
    with Warehouse.open(tmp_path / "load.duckdb") as warehouse:
        warehouse.ingest(load)
    with closing(Snapshots(tmp_path / "load.duckdb")) as snapshots, snapshots.reading() as found:
        rows = page_of(found, "run", run_id=load.run_id).results.rows
    assert [row[0].text for row in rows] == [f"{rate} requests/s, s32 n2" for rate in ("2", "2.5", "10")]


def test_metrics_that_do_not_fit_beside_the_others_of_a_load_are_in_a_table_of_their_own(tmp_path):
    """Of the 29 columns of a load test, two thirds lay beyond the right edge of a wide screen."""
    load = make_load(metrics={f"own_{number}_s": float(number) for number in range(9)})
    with Warehouse.open(tmp_path / "load.duckdb") as warehouse:
        warehouse.ingest(load)
    with closing(Snapshots(tmp_path / "load.duckdb")) as snapshots, snapshots.reading() as found:
        page = page_of(found, "run", run_id=load.run_id)
        html = render(LiveSite(), views()["run"], found, views()["run"].parameters(run_id=load.run_id))
    beside, below = ([heading.text for heading in grid.headings] for grid in (page.results, page.further))
    assert not set(beside[1:]) & set(below[1:])
    assert sum("own" in name for name in (*beside, *below)) == 9
    assert [row[below.index("own 8 (s)")].text for row in page.further.rows] == ["8", "8"]
    assert f"<summary>{len(below) - 1} further metrics</summary>" in html
    assert len(below) - 1 == 9 + 3 - 5, "with those about the requests, all but five"


def test_an_alert_of_several_points_has_the_triage_of_all(database, tmp_path):
    path = tmp_path / "triage.duckdb"
    shutil.copy(database, path)
    with Warehouse.open(path) as warehouse:
        update_changes(warehouse, judged_metric(warehouse, "latency_median_ms"))
        raise_alerts(warehouse, regressions(warehouse, [judged_metric(warehouse, "latency_median_ms")]))
        set_triage(warehouse, [list_alerts(warehouse, EVERYTHING, OPEN)[0]["alert_id"]], "regression", None)
    with closing(Snapshots(path)) as snapshots, snapshots.reading() as found:
        assert "new and regression" in [row[-1].text for row in page_of(found, "overview").alerts.rows]


def test_quantizations_of_one_model_are_one_choice_of_the_page(tmp_path):
    small = {"batch_sizes": (1,), "sequence_lengths": (32,), "runtime": "llamacpp"}
    with Warehouse.open(tmp_path / "own.duckdb") as warehouse:
        for precision, name in (("int8", "Q8_0"), ("int4", "Q4_1")):
            run = make_run(precision=precision, **small)
            warehouse.ingest(Alter.workload(run, model_id=f"a-1b.{name}.gguf", config_hash=name))
        warehouse.ingest(make_run(batch_sizes=(1,), sequence_lengths=(32,)))
    snapshots = Snapshots(tmp_path / "own.duckdb")
    with snapshots.reading() as found:
        link = page_of(found, "overview").quantizations
        assert link.parameters.model == "a-1b"
        page = page_of(found, "recommend", model="a-1b.Q4_1.gguf")
        assert (page.model, page.models) == ("a-1b", ("a-1b", "bert-base-uncased"))
        assert len(page.grid.rows) == len(page.precisions.rows) == 2
        with pytest.raises(NotFoundError, match="no result of 'a-2b'"):
            page_of(found, "recommend", model="a-2b")
    snapshots.close()


def test_an_endless_query_ends_at_the_time_limit(data, monkeypatch):
    monkeypatch.setattr(console_page, "TIME_LIMIT_S", 0.5)
    page = page_of(data, "console", sql="SELECT sum(a.range * b.range) FROM range(10000000) a, range(10000000) b")
    assert page.trouble == "no answer within 0.5 s: narrow the query"


def test_a_long_answer_is_cut_on_the_page_but_not_in_the_download(data):
    sql = "SELECT range AS n FROM range(2000)"
    page = page_of(data, "console", sql=sql)
    assert len(page.grid.rows) == console_page.MOST_ROWS
    assert page.has_more
    assert "".join(parts_of(data, "csv", sql)).count("\n") == 2001
    assert len(json.loads("".join(parts_of(data, "json", sql)))) == 2000
    parquet = pyarrow.parquet.read_table(io.BytesIO(b"".join(parts_of(data, "parquet", sql))))
    assert parquet.column("n").to_pylist() == list(range(2000))


def test_a_long_download_is_streamed(data):
    parts = parts_of(data, "csv", "SELECT range AS n FROM range(100000)")
    assert next(parts).count("\n") == console_page.LINES_A_PART
    assert sum(part.count("\n") for part in parts) == 100_001 - console_page.LINES_A_PART


@pytest.mark.parametrize("name", ["csv", "parquet", "json"])
def test_downloads_have_the_limits_of_the_console(data, name, monkeypatch):
    with pytest.raises(UsageError, match="DELETE is not read-only"):
        parts_of(data, name, "DELETE FROM benchmark_runs")
    with pytest.raises(UsageError, match="disabled by configuration"):
        parts_of(data, name, "SELECT * FROM read_text('/etc/passwd')")
    monkeypatch.setattr(console_page, "DOWNLOAD_LIMIT_S", 0.3)
    with pytest.raises(TimeLimitError, match=r"within 0\.3 s"):
        parts_of(data, name, "SELECT sum(a.range * b.range) FROM range(10000000) a, range(10000000) b")


def test_spreadsheet_formulas_are_text_in_the_csv(data):
    assert list(parts_of(data, "csv", "SELECT '=1+1' AS \"@name\", -1 AS n")) == ["'@name,n\n'=1+1,-1\n"]


@pytest.mark.parametrize("sql", console_page.EXAMPLES.values(), ids=console_page.EXAMPLES)
def test_every_console_example_has_rows(data, sql):
    page = page_of(data, "console", sql=sql)
    assert page.trouble is None
    assert page.grid.rows


@pytest.mark.parametrize(
    ("sql", "is_drawn"),
    [
        ("SELECT runtime, count(*) AS n FROM benchmark_runs GROUP BY runtime", True),
        ("SELECT started_at, load_time_s FROM benchmark_runs ORDER BY started_at", True),
        ("SELECT range AS a, range * 2 AS b FROM range(10)", True),
        ("SELECT runtime FROM benchmark_runs", False),
        ("SELECT 'one', 1", False),
        ("SELECT range::VARCHAR AS name, range AS n FROM range(100)", False),
        ("SELECT 'a' AS name, NULL::DOUBLE AS n UNION ALL SELECT 'b', 'nan'::DOUBLE", False),
        ("SELECT unnest([1.0, 'inf'::DOUBLE, 'nan', -1e308]) AS a, unnest([1, 2, 3, 4]) AS b", True),
        ("SELECT unnest(['a', 'b']) AS name, unnest([1e308, -1e308]) AS n", False),
        ("SELECT unnest(['a', 'b']) AS name, unnest([5e-324::DOUBLE, 0]) AS n", True),
        ("SELECT unnest([DATE '0001-01-01', DATE '9999-12-31']) AS day, unnest([1, 2]) AS n", True),
        ("SELECT unnest([TIMESTAMP 'infinity', TIMESTAMP '2026-01-01']) AS at, unnest([1, 2]) AS n", True),
        ("SELECT unnest([DATE '290000-01-01', DATE '0044-03-15 (BC)']) AS day, unnest([1, 2]) AS n", False),
    ],
)
def test_answers_with_a_numeric_column_are_drawn(data, sql, is_drawn):
    shown = page_of(data, "console", sql=sql)
    assert (shown.chart is not None) is is_drawn
    assert len(shown.grid.rows) > 0
    json.dumps(shown.chart.specs if is_drawn else (), allow_nan=False)


def test_what_an_answer_has_beyond_the_first_rows_is_said_at_its_chart_and_at_the_table_of_its_values(data):
    chart = page_of(data, "console", sql="SELECT range AS a, range * 2 AS b FROM range(501)").chart
    assert "Drawn: the first 500 rows." in chart.caption
    chart = page_of(data, "console", sql="SELECT range AS a, range * 2 AS b FROM range(500)").chart
    assert "Drawn" not in chart.caption
    figure = Figure(title="t", panels=(), columns_of_table=("a",), rows=tuple((n,) for n in range(1401)))
    table = vega.chart(figure).table
    assert (table.note, len(table.rows)) == ("The first 400 of 1,401 rows.", 400)


def test_a_table_is_described_and_an_unknown_one_refused(data):
    page = page_of(data, "console", table="series_alias")
    described = [one for one in page.dictionary if one.columns]
    assert [one.name for one in described] == ["series_alias"]
    with pytest.raises(UsageError, match="did you mean"):
        page_of(data, "console", table="serie_alias")


def test_a_trend_has_its_change_levels_and_a_link_to_compare(data):
    page = page_of(data, "trends", selection="model=bert-base-uncased", only_changes="1")
    assert (page.read, page.count, len(page.lines)) == (8, 4, 4)
    (chart,) = page.drawn.charts
    assert re.fullmatch(r"bert-base-uncased: latency per call rose by 20\.\d% on 2026-09-13", chart.title)
    (lines,) = [layer["data"]["values"] for layer in chart.specs[0]["layer"] if layer["mark"]["type"] == "line"]
    assert lines[-1]["y"] / lines[0]["y"] == pytest.approx(1.2, abs=0.01)
    assert "The axis does not start at 0." in chart.caption
    (change,) = page.drawn.changes.rows
    assert change[-1].link.view == "compare"
    assert change[-1].link.parameters.a.startswith("run=")


def test_a_series_is_selected_by_id_prefix(data):
    chosen = page_of(data, "trends").lines[-1].link.parameters.series
    assert [line.is_drawn for line in page_of(data, "trends", series=chosen).lines][-1]
    with pytest.raises(NotFoundError, match="no series id starts with"):
        page_of(data, "trends", series="0123456789")


def test_a_recommendation_equals_that_of_the_command(data, database, capsys):
    from db.commands.recommend import main

    main(["gpt2", "--latency-ms", "40", "--db-path", str(database)])
    printed = " ".join(capsys.readouterr().out.split())
    page = page_of(data, "recommend", model="gpt2", latency_ms="40")
    for workload in page.workloads:
        words = page_of(data, "recommend", model="gpt2", latency_ms="40", workload=workload).words
        assert words.title in printed
        assert words.advice in printed
    assert page.has_best
    (panel,) = page.chart.specs
    assert json.dumps(panel).count('"recommended"') == 1, "the chart says which of its marks it is"


def test_the_servers_for_a_rate_equal_those_of_the_command(tmp_path, capsys):
    from db.commands.recommend import main

    path = tmp_path / "own.duckdb"
    with Warehouse.open(path) as warehouse:
        warehouse.ingest_all([make_load(rates=(2.0, 8.0), model_id="served"), make_load(model_id="closed")])
    snapshots = Snapshots(path)
    with snapshots.reading() as found:
        page = page_of(found, "recommend", model="served", request_rate="5", ttft_ms="1000000")
        with pytest.raises(UsageError, match="above 0"):
            page_of(found, "recommend", model="served", request_rate="0")
        assert page_of(found, "recommend", model="served").why_none.startswith("2 results are selected, 2 from load")
    snapshots.close()
    main(["served", "--request-rate", "5", "--limit", "ttft:1000s", "--db-path", str(path)])
    printed = " ".join(capsys.readouterr().out.split())
    ((served,), limits) = page.served, [one.name for one in page.limits]
    assert limits == ["latency_ms", "ttft_ms", "tpot_ms"]
    assert served.words.title in printed
    assert served.words.advice in printed
    assert served.grid.rows[0][0].link.parameters.hardware


def test_the_question_of_the_quantization_leads_to_a_page_that_answers_it(tmp_path):
    """Also where the best option is on a machine with one precision, and at another length than the first."""
    path = tmp_path / "own.duckdb"
    fast = Alter.on_device(make_run(model_id="m", precision="float16", slowdown=0.5), "A fast card", "cuda")
    quantized = [
        Alter.only(make_run(model_id="m", precision=name, slowdown=factor), lambda point: point.sequence_length == 128)
        for name, factor in (("float32", 5.0), ("int8", 3.0), ("int4", 2.0))
    ]
    several = [make_run(model_id="two", precision=name) for name in ("float32", "int8")]
    with Warehouse.open(path) as warehouse:
        warehouse.ingest_all([make_run(model_id="plain"), fast, *quantized, *several])
    with closing(Snapshots(path)) as snapshots, snapshots.reading() as found:
        link = page_of(found, "overview").quantizations
        page = page_of(found, "recommend", model=link.parameters.model)
        at_32 = page_of(found, "recommend", model="m", workload=next(one for one in page.workloads if "s32" in one))
    assert page.words.precisions[1].startswith("Against float32 by eager at 800 tokens/s on Test CPU, ")
    assert [row[0].text for row in page.precisions.rows] == ["float32", "int8", "int4"]
    assert (page.model, at_32.precisions) == ("m", None)


def test_a_device_has_its_colour_of_other_charts_when_it_is_recommended(tmp_path):
    path = tmp_path / "own.duckdb"
    fast = Alter.on_device(make_run(model_id="m", slowdown=0.5, started_at="2026-05-01T00:00:00Z"), "Fast", "cuda")
    for run in (make_run(model_id="m"), fast):
        with Warehouse.open(path) as warehouse:
            warehouse.ingest(run)
    with closing(Snapshots(path)) as snapshots, snapshots.reading() as found:
        legend = page_of(found, "recommend").chart.legend
        chart, *_ = page_of(found, "charts", chart="hardware_speedup", model="m").charts
    assert [(entry.label, entry.colour) for entry in legend[:2]] == [("Fast", "c1"), ("Test CPU", "c0")]
    assert "c1" in {row["colour"] for row in marks_of(chart) if row["words"].startswith("Fast")}


def test_a_workload_whose_quality_is_measured_is_recommended_for_first(tmp_path):
    path = tmp_path / "own.duckdb"
    measured = Quality(values={"kl_divergence": QualityValue(value=0.01, low=0.009, high=0.011)}, inputs="a", how={})
    at_128 = [make_run(model_id="m", precision=name) for name in ("float32", "int8", "int4")]
    at_128 = [Alter.only(run, lambda point: point.sequence_length == 128) for run in at_128]
    at_32 = [dataclasses.replace(make_run(model_id="m", precision=name), quality=measured) for name in ("int8", "int4")]
    at_32 = [Alter.only(run, lambda point: point.sequence_length == 32) for run in at_32]
    with Warehouse.open(path) as warehouse:
        warehouse.ingest_all([*at_128, *map(Alter.renewed, at_32)])
    with closing(Snapshots(path)) as snapshots, snapshots.reading() as found:
        page = page_of(found, "recommend")
    assert "s32" in page.workload
    assert [row[0].text for row in page.precisions.rows] == ["int8", "int4"]


def test_a_comparison_has_the_quality_of_both_sides(tmp_path, capsys):
    """As the command prints it; the report too."""
    path = tmp_path / "own.duckdb"
    with Warehouse.open(path) as warehouse:
        for precision, perplexity in (("int8", 12.75), ("int4", 18.04)):
            value = QualityValue(value=perplexity, low=perplexity - 1, high=perplexity + 1)
            quality = Quality(values={"perplexity": value}, inputs="a text", how={"windows": 16})
            warehouse.ingest(Alter.renewed(dataclasses.replace(make_run(precision=precision), quality=quality)))
    with closing(Snapshots(path)) as snapshots, snapshots.reading() as found:
        page = page_of(found, "compare", a="precision=int8", b="precision=int4")
    (line,) = (note for note in page.compared.notes if note.startswith("quality"))
    assert "perplexity 12.75 -> 18.04" in line
    written = tmp_path / "report.md"
    given = ["--report", str(written), "--db-path", str(path), "--compare", "precision=int8", "precision=int4"]
    visualize_benchmarks.main(given)
    assert "perplexity 12.75" in written.read_text()


def test_workloads_of_the_same_words_are_all_offered(tmp_path):
    path = tmp_path / "own.duckdb"
    runs = [
        Alter.workload(make_run(runtime=runtime), revision=revision)
        for runtime, revision in (("eager", "a" * 40), ("onnxruntime", "b" * 40))
    ]
    with Warehouse.open(path) as warehouse:
        warehouse.ingest_all(runs)
    with closing(Snapshots(path)) as snapshots, snapshots.reading() as found:
        offered = [*page_of(found, "recommend").workloads]
        shown = {page_of(found, "recommend", workload=one).words.table.rows[0][1] for one in offered}
    assert len({*offered}) == 4
    assert all("revision " in one for one in offered)
    assert shown == {"eager", "onnxruntime"}


def test_an_old_link_to_a_workload_leads_to_what_is_offered_today(data, tmp_path):
    """Titles once had the weights of the caller, and lacked facts that only tell workloads of the same words apart."""
    path = tmp_path / "own.duckdb"
    runs = [Alter.workload(make_run(), weights="given", revision=one * 40) for one in "ab"]
    with Warehouse.open(path) as warehouse:
        warehouse.ingest_all(runs)
    with closing(Snapshots(path)) as snapshots, snapshots.reading() as found:
        offered = [*page_of(found, "recommend").workloads]
        plain = offered[0].partition(", revision ")[0]
        for old in (plain, f"{plain}, given weights", f"{offered[0]}, in tokens"):
            page = page_of(found, "recommend", workload=old)
            assert page.workload in offered
            assert page.words.title.startswith(plain)
            assert page.notice is None
        page = page_of(found, "recommend", workload=f"{plain}, revision {'b' * 8}, in tokens")
        assert page.workload == next(title for title in offered if "revision bbbbbbbb" in title)
        for other in (f"{plain}, revision {'c' * 8}", f"{plain}, in items"):
            page = page_of(found, "recommend", workload=other)
            assert page.words.title.startswith(plain)
            assert page.notice == f"bert-base-uncased has no workload '{other}': this is {page.workload}."
        page = page_of(found, "recommend", workload=f"{plain}, random weights")
        assert page.notice == f"bert-base-uncased has no workload '{plain}, random weights': this is {page.workload}."
    page = page_of(data, "recommend", model=LOADED, workload="text-generation", request_rate="1")
    assert page.served, "the form also sends the workload of single calls"


def test_a_limit_says_why_no_option_can_meet_it(tmp_path):
    """A latency of one launch is measured, but has no upper end that a limit could apply to."""
    run = Alter.results(make_run(), Alter.metrics(latency_ci_low_ms=None, latency_ci_high_ms=None))
    with Warehouse.open(tmp_path / "own.duckdb") as warehouse:
        warehouse.ingest(run)
    with closing(Snapshots(tmp_path / "own.duckdb")) as snapshots, snapshots.reading() as found:
        limits = {one.name: one for one in page_of(found, "recommend").limits}
    assert (limits["latency_ms"].positions, limits["latency_ms"].missing) == ((), "too few samples for an interval")
    assert (limits["energy_j"].positions, limits["energy_j"].missing) == ((), "not supported")


def test_each_slider_position_admits_more_options(data):
    limits = {one.name: one for one in page_of(data, "recommend", model="gpt2", latency_ms="40").limits}
    latency, throughput = limits["latency_ms"], limits["throughput"]
    assert latency.positions[-1] is None
    assert throughput.positions[0] is None
    assert latency.positions[latency.position - 1] < 40 <= latency.positions[latency.position]
    fitting = [
        sum(row["state"] != "invalid" for row in front_of(data, latency_ms=str(value)))
        for value in latency.positions[:-1]
    ]
    assert fitting == sorted(fitting)
    assert fitting[0] >= 1
    assert all(row["state"] != "invalid" for row in front_of(data, latency_ms=str(latency.positions[-2])))
    assert limits["energy_j"].positions == ()


def front_of(data, **limits):
    return marks_of(page_of(data, "recommend", model="gpt2", **limits).chart)


def test_a_limit_must_be_a_number(data):
    with pytest.raises(UsageError, match="latency_ms=fast: expected a number from 0"):
        page_of(data, "recommend", latency_ms="fast")


@pytest.mark.parametrize("name", ["recommend", "hardware"])
def test_an_unknown_model_is_not_found(data, name):
    with pytest.raises(NotFoundError):
        page_of(data, name, model="none")


def test_another_model_is_shown_though_the_form_still_has_what_the_first_had(data):
    """A form sends all its lists: the workload, point and setup of the model that was shown are no dead end."""
    page = page_of(data, "recommend", model="gpt2", workload="that of another")
    assert page.notice == f"gpt2 has no workload 'that of another': this is {page.workload}."
    page = page_of(data, "hardware", model="gpt2", point="b3 s3", baseline="another")
    assert page.notices == [
        f"gpt2 has no point 'b3 s3' here: this is {page.point}.",
        f"gpt2 has no setup 'another' here: this is {page.baseline}.",
    ]
    assert page.grid.rows


def test_nothing_is_said_of_what_a_warehouse_without_results_lacks(tmp_path):
    path = tmp_path / "own.duckdb"
    with Warehouse.open(path):
        pass
    with closing(Snapshots(path)) as snapshots, snapshots.reading() as found:
        assert page_of(found, "hardware", point="b3 s3", baseline="another").notices == []


def test_a_regression_of_a_setup_is_one_row_of_the_overview(data):
    """However many points it has: otherwise they hide the other regressions."""
    rows = page_of(data, "overview").regressions.rows
    setups = [(row[1].text, row[3].text) for row in rows]
    assert len({*setups}) == len(setups)
    assert any(re.fullmatch(r"b\d+ s\d+.* and \d+ more", row[4].text) for row in rows)
    further = [(row[4].hint.count(";") + 1, int(row[4].text.split()[-2])) for row in rows if " more" in row[4].text]
    assert all(named == more for named, more in further)


def test_the_tooltip_of_a_cell_names_no_more_than_its_reader_can_see(tmp_path):
    origin = Origin(format="llama_bench", definition="llama_bench")
    runs = [dataclasses.replace(make_run(model_id=f"model-{number}"), origin=origin) for number in range(90)]
    with Warehouse.open(tmp_path / "own.duckdb") as warehouse:
        warehouse.ingest_all([Alter.renewed(run) for run in runs])
    with closing(Snapshots(tmp_path / "own.duckdb")) as snapshots, snapshots.reading() as found:
        (row,) = page_of(found, "overview").imports.rows
    assert row[3].text == "model-0, model-1 and 88 more"
    assert row[3].hint.endswith(" and 68 more")


def test_a_file_without_a_date_is_not_called_the_newest_run(tmp_path):
    """The time that is stored for it is when the file was last written, perhaps by copying it."""
    path = tmp_path / "own.duckdb"
    file = read_file(FIXTURES / "imports/vllm_printed/first_versions.log")
    with Warehouse.open(path) as warehouse:
        warehouse.ingest_all([*importer_for(file).runs(file), make_run()])
    with closing(Snapshots(path)) as snapshots, snapshots.reading() as found:
        assert page_of(found, "overview").totals[-1] == ("newest run here", "2026-01-02 03:04 UTC")
        loads = page_of(found, "loads").loads
        (link, *_) = [cell.link for cell in loads.rows[0] if cell.link]
        facts = dict(page_of(found, "load", run_id=link.parameters.run_id).facts)
        machines = page_of(found, "hardware").machines.rows
    headings = [heading.text for heading in loads.headings]
    assert loads.rows[0][0].text.startswith("file of ")
    assert facts["started"].startswith("file of ")
    assert "knee" not in headings  # no test has one
    assert "requests/s" in headings
    assert [(row[0].text, row[-1].text) for row in machines] == [
        ("Test CPU", "2026-01-02 03:04"),
        ("not stated", "-"),
    ]


def test_the_list_of_loads_and_the_page_of_one_agree_and_promise_nothing_that_is_not_stored(tmp_path):
    """A log with two results at one level and without a date."""
    path = tmp_path / "own.duckdb"
    file = read_file(FIXTURES / "imports/vllm_printed/first_versions.log")
    with Warehouse.open(path) as warehouse:
        warehouse.ingest_all(list(importer_for(file).runs(file)))
        with warehouse.transaction() as connection:  # in the order of the result ids, the other one is the newer
            connection.execute("UPDATE benchmark_runs SET started_at = '2026-01-02'")
    with closing(Snapshots(path)) as snapshots, snapshots.reading() as found:
        listed = page_of(found, "loads").loads
        (row,) = listed.rows
        page = views()["load"].page(found, row[1].link.parameters)
        run = page_of(found, "run", run_id=page.run_id)
    shown = dict(zip((heading.text for heading in listed.headings), (cell.text for cell in row), strict=True))
    (level,) = page.levels.rows
    assert shown["requests/s"] == {"6.05": "6.05", "6.15": "6.15"}[level[2].text]
    assert page.answer.startswith(f"At most {level[2].text} requests/s answered at 6.5 requests/s")
    assert (level[0].link, level[0].hint, page.requests) == (None, None, ())
    assert {(line[0].link, line[0].hint) for line in run.results.rows} == {(None, None)}


def test_speedups_and_titles_are_about_one_definition_of_the_metrics(tmp_path):
    one = {"batch_sizes": (1,), "sequence_lengths": (32,)}
    origin = Origin(format="pyperf", definition="pyperf")
    with Warehouse.open(tmp_path / "own.duckdb") as warehouse:
        warehouse.ingest_all(
            [
                make_run(**one),
                make_run(**one, runtime="onnxruntime", slowdown=0.5),
                dataclasses.replace(make_run(**one, runtime="openvino", slowdown=0.3), origin=origin),
            ]
        )
    with closing(Snapshots(tmp_path / "own.duckdb")) as snapshots, snapshots.reading() as found:
        page = page_of(found, "hardware")
    assert [(row[0].text.split(" ")[0], row[1].text) for row in page.grid.rows] == [
        ("openvino", "-"), ("onnxruntime", "2\N{MULTIPLICATION SIGN}"), ("eager", "1\N{MULTIPLICATION SIGN}"),
    ]  # fmt: skip
    assert "openvino" not in page.chart.title
    assert "others are defined differently" in page.chart.caption


def test_no_result_of_a_file_without_a_date_has_a_start(tmp_path):
    """A failed or skipped one neither."""
    path = tmp_path / "own.duckdb"
    file = read_file(FIXTURES / "imports/asv/first_results.json")
    with Warehouse.open(path) as warehouse:
        warehouse.ingest_all(list(importer_for(file).runs(file)))
    with closing(Snapshots(path)) as snapshots, snapshots.reading() as found:
        runs = [row["run_id"] for row in found.warehouse.query("SELECT run_id FROM benchmark_runs").dicts()]
        starts = [dict(page_of(found, "run", run_id=run).facts)["started"] for run in runs]
        (session,) = page_of(found, "compare").sessions.rows
    assert session[0].text.startswith("file of ")
    assert len(starts) == 5
    assert all(start.startswith("file of ") for start in starts)


def test_equal_setups_of_several_machines_have_their_hardware(tmp_path):
    """Machines of one name their hardware id."""
    run = make_run(batch_sizes=(1,), sequence_lengths=(32,))
    runs = [Alter.on_device(run, name) for name in ("Fast Box", "Slow Box", "Same")]
    twin = dataclasses.replace(runs[2].hardware, hardware_id="1234567890abcdef", hashed_keys={"twin": True})
    runs.append(dataclasses.replace(runs[2], hardware=twin))
    with Warehouse.open(tmp_path / "own.duckdb") as warehouse:
        warehouse.ingest_all([Alter.renewed(one) for one in runs])
    with closing(Snapshots(tmp_path / "own.duckdb")) as snapshots, snapshots.reading() as found:
        cards, lines = page_of(found, "overview").cards, page_of(found, "trends").lines
        results = page_of(found, "results").grid
        listed, _ = newest_results(found.warehouse, EVERYTHING, METRICS[DEFAULT_METRIC], limit=9)
    assert len({card.about for card in cards}) == len({line.about for line in lines}) == 4
    assert sum("Fast Box" in card.about for card in cards) == 1
    place = next(at for at, heading in enumerate(results.headings) if heading.text == "hardware")
    assert len({row[place].text for row in results.rows}) == 4
    assert {row["device_name"]: row["settings"] for row in listed if row["device_name"] != "Same"} == {
        "Fast Box": None, "Slow Box": None,
    }  # fmt: skip
    assert "hardware 12345678" in [row["settings"] for row in listed]


@pytest.mark.parametrize(
    ("axes", "point", "text"),
    [
        ({"request_rate": 6.5, "input_tokens_mean": 121}, {}, "6.5 requests/s, 121 input tokens on average"),
        ({"request_rate": 4.0}, {"new_tokens": 16}, "4 requests/s, n16"),
        ({"request_rate": 4.0}, {"batch_size": 16}, "4 requests/s, b16"),
        ({"request_rate": 4.0}, {}, "4 requests/s"),
    ],
)
def test_the_point_of_a_load_has_no_empty_part(axes, point, text):
    columns = ROW | {"sequence_length": None, "axes": json.dumps(axes)} | point
    assert point_text(columns) == text


def test_only_setups_of_one_workload_are_compared(tmp_path):
    """Another task, configuration or revision of a model of the same name takes other times."""
    facts = {"batch_sizes": (1,), "sequence_lengths": (32,)}
    masked = [
        Alter.workload(make_run(runtime=runtime, slowdown=slowdown, **facts), task="fill-mask")
        for runtime, slowdown in (("eager", 6.0), ("onnxruntime", 4.0))
    ]
    small = Alter.workload(make_run(slowdown=0.2, **facts), config={"n": 1}, config_hash=canonical_hash({"n": 1}))
    revised = Alter.workload(make_run(slowdown=0.3, **facts), revision="abcdef0123456789")
    with Warehouse.open(tmp_path / "own.duckdb") as warehouse:
        warehouse.ingest_all([*masked, make_run(**facts), small, revised])
    with closing(Snapshots(tmp_path / "own.duckdb")) as snapshots, snapshots.reading() as found:
        page = page_of(found, "hardware")
        others = [page_of(found, "hardware", workload=one) for one in page.workloads if one != page.workload]
        results = page_of(found, "results").grid
    assert page.workload == "fill-mask, random weights", "the one with most setups"
    assert {"task", "revision", "configuration"} <= {one.text for one in results.headings}, "rows are told apart"
    assert "weights" not in {one.text for one in results.headings}
    assert [row[0].text.split(" ")[0] for row in page.grid.rows] == ["onnxruntime", "eager"]
    assert [len(one.grid.rows) for one in others] == [1, 1, 1]
    assert [one.workload.rpartition(", ")[2].split(" ")[0] for one in others].count("configuration") >= 1
    assert any("revision abcdef01" in one.workload for one in others)
    assert [(text, is_shown) for text, _, is_shown in page.choices[1].options] == [
        (one, one == page.workload) for one in page.workloads
    ]


def test_the_workloads_of_a_users_benchmark_are_named_by_their_settings(tmp_path):
    """Which are in its configuration, whose digest says nothing."""
    runs = []
    for size in (1, 2):
        config = {"options": {"rows": size, "sorted": True}}
        run = Alter.workload(
            make_run(batch_sizes=(1,), sequence_lengths=(32,)),
            model_id="timed",
            source="bench",
            config=config,
            config_hash=canonical_hash(config),
        )
        runs.append(dataclasses.replace(run, cell=dataclasses.replace(run.cell, runtime="bench")))
    with Warehouse.open(tmp_path / "own.duckdb") as warehouse:
        warehouse.ingest_all(runs)
    with closing(Snapshots(tmp_path / "own.duckdb")) as snapshots, snapshots.reading() as found:
        assert [one.rpartition(", ")[2] for one in page_of(found, "hardware").workloads] == ["rows=1", "rows=2"]


def test_revisions_that_begin_alike_are_workloads_of_their_own(tmp_path):
    """Of a tag, eight letters are not enough: setups of two revisions would be compared as one."""
    runs = [
        Alter.workload(make_run(batch_sizes=(1,), sequence_lengths=(32,)), revision=revision)
        for revision in ("step1000", "step10000", "a" * 40)
    ]
    with Warehouse.open(tmp_path / "own.duckdb") as warehouse:
        warehouse.ingest_all(runs)
    with closing(Snapshots(tmp_path / "own.duckdb")) as snapshots, snapshots.reading() as found:
        workloads = page_of(found, "hardware").workloads
    assert [one.rpartition(", ")[2] for one in workloads] == [
        "revision aaaaaaaa",
        "revision step1000",
        "revision step10000",
    ]


def test_series_with_a_change_are_found_among_all(tmp_path, monkeypatch):
    """However many come before them, and of how many series a page has some is said."""
    monkeypatch.setattr(trends_page, "SERIES", 2)
    days = [f"2026-03-{day:02}T12:00:00Z" for day in range(1, 15)]
    facts = {"batch_sizes": (1,), "sequence_lengths": (32,)}
    with Warehouse.open(tmp_path / "own.duckdb") as warehouse:
        for model in "abcde":
            slow = 1.5 if model == "d" else 1.0
            runs = [
                make_run(model_id=model, slowdown=slow if at > days[6] else 1.0, started_at=at, **facts) for at in days
            ]
            warehouse.ingest_all([Alter.renewed(run) for run in runs])
    with closing(Snapshots(tmp_path / "own.duckdb")) as snapshots, snapshots.reading() as found:
        newest, changed = (page_of(found, "trends", **asked) for asked in ({}, {"only_changes": "1"}))
    assert (len(newest.lines), newest.count) == (2, 5)
    assert [line.name for line in changed.lines] == ["d"]
    assert (changed.count, changed.read) == (1, 5)


@pytest.mark.parametrize("asked", [{"only_changes": "1"}, {}, {"selection": "model=bert-base-uncased"}])
def test_the_series_of_a_list_are_searched_once_for_all_that_a_page_leads_to(database, monkeypatch, asked):
    searched = []
    histories = trends_page.histories
    monkeypatch.setattr(
        trends_page, "histories", lambda *asked, **limit: searched.append(asked[1]) or histories(*asked, **limit)
    )
    with closing(Snapshots(database)) as snapshots, snapshots.reading() as found:
        first = page_of(found, "trends", **asked)
        for line in first.lines[1:3]:
            page = page_of(found, "trends", **asked, series=line.link.parameters.series)
            assert page.drawn.charts != first.drawn.charts
        assert len(searched) == 1


def test_each_list_of_series_with_a_change_is_searched_for_itself(database, monkeypatch):
    searched = []
    histories = trends_page.histories
    monkeypatch.setattr(
        trends_page, "histories", lambda *asked, **limit: searched.append(asked[1]) or histories(*asked, **limit)
    )
    with closing(Snapshots(database)) as snapshots, snapshots.reading() as found:
        first = page_of(found, "trends", only_changes="1")
        selected = page_of(found, "trends", only_changes="1", selection="model=bert-base-uncased")
        assert len(searched) == 2
        assert selected.read < first.read
        other = page_of(found, "trends", only_changes="1", metric="latency_p90_ms")
        assert (len(searched), other.judged) == (3, "latency_p90_ms above 0")


def test_the_points_of_hardware_and_recommend_have_the_words_of_the_other_pages(tmp_path):
    with Warehouse.open(tmp_path / "deep.duckdb") as warehouse:
        warehouse.ingest(make_run(batch_sizes=(1,), sequence_lengths=(32,), axes={"depth": (512,)}))
    with closing(Snapshots(tmp_path / "deep.duckdb")) as snapshots, snapshots.reading() as found:
        page = page_of(found, "hardware", point="b1 s32 depth=512")
        html = render(LiveSite(), views()["hardware"], found, views()["hardware"].parameters())
        (title, text), *_ = page_of(found, "recommend").workloads.items()
        recommended = render(LiveSite(), views()["recommend"], found, views()["recommend"].parameters(workload=title))
    assert (title, text) == tuple(
        f"feature-extraction, s32{one}, random weights" for one in (" depth=512", ", after 512 tokens")
    )
    assert f"bert-base-uncased, {text}: " in recommended
    assert "depth=512</h2>" not in recommended
    assert "no workload" not in recommended
    assert page.points == {page.point: "b1 s32, after 512 tokens"} == {"b1 s32 depth=512": "b1 s32, after 512 tokens"}
    assert "random weights, b1 s32, after 512 tokens</h2>" in html


def test_speedups_are_over_the_chosen_baseline(data):
    page = page_of(data, "hardware", model="bert-base-uncased", point="b1 s32")
    assert "onnxruntime" in page.baselines[0]
    by_default = [row[1].text for row in page.grid.rows]
    assert by_default[-1] == "1\N{MULTIPLICATION SIGN}"
    chosen = page_of(data, "hardware", model="bert-base-uncased", point="b1 s32", baseline=page.baselines[0])
    assert chosen.grid.rows[0][1].text == "1\N{MULTIPLICATION SIGN}"
    assert float(by_default[0].rstrip("\N{MULTIPLICATION SIGN}")) * float(
        chosen.grid.rows[-1][1].text.rstrip("\N{MULTIPLICATION SIGN}")
    ) == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize(
    ("launches", "commands", "title"),
    [
        (3, "aa", "eager · float32 is 2 times as fast as onnxruntime · float32"),
        (1, "aa", "Lowest median latency: eager · float32, not judged faster than all others"),
        (1, "aa, doubtful", "Lowest median latency: eager · float32, doubtful and not judged faster than all others"),
        (3, "ab", "eager · float32 took 8 ms, onnxruntime · float32 16 ms"),
    ],
)
def test_the_hardware_chart_names_a_winner_only_if_intervals_of_one_command_support_it(
    tmp_path, launches, commands, title
):
    from db.warehouse import Warehouse

    with Warehouse.open(tmp_path / "two.duckdb") as warehouse:
        for factor, runtime, command in zip((1, 2), ("eager", "onnxruntime"), commands[:2], strict=True):
            facts = {"session_id": f"{command * 8}-1111-7111-8111-111111111111", "launches": launches, "iterations": 4}
            run = Alter.varied(make_run(runtime=runtime, slowdown=factor, **facts))
            warehouse.ingest(Alter.results(run, Alter.noisy) if "doubtful" in commands else run)
    snapshots = Snapshots(tmp_path / "two.duckdb")
    with snapshots.reading() as two:
        chart = page_of(two, "hardware", point="b1 s32").chart
    assert chart.title == title
    assert ("Not judged: different commands" in chart.caption) is (commands == "ab")
    snapshots.close()


def test_setups_without_a_latency_are_listed_with_their_device_and_the_day_of_their_file(tmp_path):
    """There is no chart whose subtitle has the device that they share."""
    file = (Doubt(kind="undated", severity="info"),)
    with Warehouse.open(tmp_path / "own.duckdb") as warehouse:
        for runtime in ("eager", "onnxruntime"):
            run = Alter.only(make_run(runtime=runtime), lambda point: point.batch_size == 1)
            rate = {"throughput_samples_per_sec": 5.0}
            results = [dataclasses.replace(one, metrics=rate, samples=(), doubts=file) for one in run.results]
            warehouse.ingest(dataclasses.replace(run, results=tuple(results)))
    with closing(Snapshots(tmp_path / "own.duckdb")) as snapshots, snapshots.reading() as found:
        page = page_of(found, "hardware")
    assert page.chart is None
    assert sorted((row[0].text, row[-1].text) for row in page.grid.rows) == [
        *((f"{runtime} · float32 · Test CPU", "file of 2026-01-02") for runtime in ("eager", "onnxruntime")),
    ]


def test_a_setup_without_a_latency_is_no_baseline_unless_it_is_chosen(tmp_path):
    with Warehouse.open(tmp_path / "own.duckdb") as warehouse:
        for runtime, metrics in (("eager", {}), ("onnxruntime", {}), ("openvino", {"throughput_samples_per_sec": 5.0})):
            run = make_run(runtime=runtime, batch_sizes=(1,), sequence_lengths=(32,))
            bare = [dataclasses.replace(one, metrics=metrics, samples=()) for one in run.results] if metrics else ()
            warehouse.ingest(dataclasses.replace(run, results=tuple(bare or run.results)))
    with closing(Snapshots(tmp_path / "own.duckdb")) as snapshots, snapshots.reading() as found:
        page = page_of(found, "hardware")
    assert [row[1].text[-1] for row in page.grid.rows] == ["\N{MULTIPLICATION SIGN}", "\N{MULTIPLICATION SIGN}", "-"]


def test_every_page_works_with_an_empty_warehouse(tmp_path):
    from db.warehouse import Warehouse
    from visualize.pages.site import LiveSite, render

    Warehouse.open(tmp_path / "empty.duckdb").close()
    snapshots = Snapshots(tmp_path / "empty.duckdb")
    nothing = LiveSnapshot(at_s=0.0, running=(), ended=(), ignored=())
    with snapshots.reading() as empty:
        seen = dataclasses.replace(empty, live_snapshot=lambda: nothing)
        for view in views().values():
            if view.is_in_navigation:
                assert "<h1>" in render(LiveSite(), view, seen, view.parameters())
    snapshots.close()


def test_custom_metrics_are_columns_and_can_be_compared_and_followed(data, database, tmp_path, capsys):
    from visualize.visualize_benchmarks import main

    eager = {"metric": "pages_per_sec", "a": "runtime=eager,until=2026-09-02", "b": "runtime=eager,since=2026-09-10"}
    results = page_of(data, "results", runtime="eager", model="bert-base-uncased")
    place = [heading.text for heading in results.grid.headings].index("pages (pages/s)")
    assert sum(row[place].text != "-" for row in results.grid.rows) == 4
    mixed = page_of(data, "results", model="bert-base-uncased").grid.headings
    assert "pages (pages/s)" not in [heading.text for heading in mixed], "only where every runtime has it"
    run = page_of(data, "run", run_id=results.grid.rows[0][1].link.parameters.run_id)
    assert "pages (pages/s)" in [heading.text for heading in run.results.headings]
    compared = page_of(data, "compare", **eager)
    assert compared.metrics["pages_per_sec"] == "pages (pages/s)"
    assert compared.compared.head[0].startswith("pages (pages/s), geometric mean of the launches; A: runtime=eager")
    trends = page_of(data, "trends", metric="pages_per_sec", selection="runtime=eager")
    assert (trends.count, trends.lines[0].value.split()[1]) == (4, "pages/s")
    asked = ["--db-path", str(database), "--chart", "temporal_trend", "--format", "svg", "--output-dir", str(tmp_path)]
    assert main([*asked, "--metric", "pages_per_sec"]) == 0
    (drawn,) = capsys.readouterr().out.split()
    assert "Pages per sec over time" in Path(drawn).read_text()
    assert main([*asked, "--metric", "page_per_sec"]) == 2
    assert "did you mean pages_per_sec" in capsys.readouterr().err


def test_a_profile_has_titles_pictures_and_tables(data):
    listed = views()["profiles"].page(data, views()["profiles"].parameters())
    (link,) = [row[0].link for row in listed.profiles.rows if row[1].text == "bert-base-uncased"]
    shown = views()["profile"].page(data, link.parameters)
    flame, layers = shown.charts
    assert flame.title == "bert-base-uncased: attention takes 83% of a call"
    assert layers.title == "bert-base-uncased: layer layers.1 takes 4 times as long as layers.0"
    by_depth: dict[int, float] = {}
    for block in marks_of(flame, kind="rect"):
        depth = round((block["y"] + block["top"]) / 2)
        by_depth[depth] = by_depth.get(depth, 0.0) + block["right"] - block["x"]
        assert 0 <= block["x"] <= block["right"] <= 1.00001
    assert by_depth[0] == 1
    assert by_depth[1] == pytest.approx(5 / 6, abs=0.0001)
    assert ticks_of(layers, "ytext")[1] == "layers.1"
    assert len(flame.table.rows) == 3
    assert (shown.operators.rows[0][0].text, shown.rest) == ("aten::addmm", None)
    (run,) = data.warehouse.query(
        "SELECT max_by(run_id, started_at) AS id FROM benchmark_runs "
        "WHERE model_id = 'bert-base-uncased' AND runtime = 'eager'"
    ).dicts()
    ((_, leads_to),) = views()["run"].page(data, views()["run"].parameters(run_id=run["id"])).profiles
    assert leads_to == link
    with pytest.raises(NotFoundError, match="no profile 'x'"):
        views()["profile"].page(data, views()["profile"].parameters(profile_id="x"))


def test_operators_that_the_table_of_a_profile_leaves_out_are_counted_with_their_share(data, monkeypatch):
    monkeypatch.setattr(profiles_page, "LEAST_SHARE", 0.5)
    listed = views()["profiles"].page(data, views()["profiles"].parameters())
    (link,) = [row[0].link for row in listed.profiles.rows if row[1].text == "bert-base-uncased"]
    shown = views()["profile"].page(data, link.parameters)
    assert shown.operators.rows == ()
    assert shown.rest == "Not listed: 1 further operator, with 41.7% of a call"


def test_an_imported_load_has_its_host_and_doubts_without_our_flags(tmp_path):
    alone = shutil.copy(FIXTURES / "imports/guidellm/benchmarks.csv", tmp_path)  # beside its JSON it is not read
    file = read_file(Path(alone))
    with Warehouse.open(tmp_path / "own.duckdb") as warehouse:
        warehouse.ingest_all(list(importer_for(file).runs(file)))
    snapshots = Snapshots(tmp_path / "own.duckdb")
    with snapshots.reading() as found:
        ((_, model, server, *_),) = page_of(found, "loads").loads.rows
        page = views()["load"].page(found, model.link.parameters)
        results = page_of(found, "results").grid
    snapshots.close()
    assert server.text == dict(page.facts)["server"] == "127.0.0.1:18765"
    assert not {"precision", "weights"} & dict(page.facts).keys(), "neither is in the file"
    assert {row[4].text for row in results.rows} == {"not stated"}, "of which the warehouse has 'unknown'"
    worst, *_ = page.doubts
    assert (worst.kind, worst.tone) == ("late_generator", "bad")
    assert worst.sentence == "Requests were sent late, by more than 1% of the time to first token."
    assert "concurrency" not in page.charts[0].caption
    assert {cell.text for row in results.rows for cell in row if "+" in (cell.text or "")} == {
        "late generator, time zone unknown +2"
    }


def test_a_run_whose_file_states_neither_its_end_nor_its_calls_says_so(tmp_path):
    file = read_file(FIXTURES / "imports/llama_bench/33_columns.csv")
    with Warehouse.open(tmp_path / "own.duckdb") as warehouse:
        (run,) = importer_for(file).runs(file)
        warehouse.ingest(run)
    snapshots = Snapshots(tmp_path / "own.duckdb")
    with snapshots.reading() as found:
        page = views()["run"].page(found, views()["run"].parameters(run_id=run.run_id))
    snapshots.close()
    assert dict(page.facts)["started"].endswith(", end not stated")
    assert launches_of({"launches": 1, "iterations": None}).hint == "the file does not state how many calls were timed"


def test_an_imported_sweep_of_files_is_one_row_of_loads_with_all_its_levels(tmp_path):
    file = json.loads((FIXTURES / "imports/vllm_bench_serve/server_of_vllm.json").read_text())
    with Warehouse.open(tmp_path / "own.duckdb") as warehouse:
        for second, rate in enumerate((1.0, 2.0, 4.0, "inf")):
            done = min(float(rate), 4.0)
            changed = {**file, "request_rate": rate, "request_throughput": done, "date": f"20250416-12000{second}"}
            (tmp_path / f"{rate}.json").write_text(json.dumps(changed))
            read = read_file(tmp_path / f"{rate}.json")
            warehouse.ingest_all(list(importer_for(read).runs(read)))
    snapshots = Snapshots(tmp_path / "own.duckdb")
    with snapshots.reading() as found:
        listed = page_of(found, "loads").loads
        (row,) = listed.rows
        page = views()["load"].page(found, row[1].link.parameters)
    snapshots.close()
    shown = dict(zip((heading.text for heading in listed.headings), (cell.text for cell in row), strict=True))
    assert [shown["levels"], shown["requests/s"]] == ["4/4", "4"]
    levels = ["1 request/s", "2 requests/s", "4 requests/s", "unlimited requests/s"]
    assert [one[0].text for one in page.levels.rows] == levels
    assert page.charts[0].title == "Latency under load: base", "the file has no latency, but times of tokens"
    assert page.alike == []


def test_imported_loads_of_other_requests_are_tests_of_their_own(tmp_path):
    with Warehouse.open(tmp_path / "own.duckdb") as warehouse:
        for number, (rate, length) in enumerate(((1.0, 32), (2.0, 32), (1.0, 2048), (2.0, 2048))):
            load = make_load(rates=(rate,), metrics={"throughput_samples_per_sec": rate * 32 / length})
            (level,) = load.results
            point = dataclasses.replace(level.point, axes={**level.point.axes, "input_len": length})
            results = (dataclasses.replace(level, result_id=f"level-{number}", point=point),)
            warehouse.ingest(dataclasses.replace(load, results=results, origin=Origin(format="a", definition="a")))
    with closing(Snapshots(tmp_path / "own.duckdb")) as snapshots, snapshots.reading() as found:
        listed = page_of(found, "loads").loads
        pages = [views()["load"].page(found, row[1].link.parameters) for row in listed.rows]
    assert sorted(page.answer.partition(" request")[0] for page in pages) == ["At most 0.03125", "At most 2"]
    assert [len(page.levels.rows) for page in pages] == [2, 2]


def test_the_page_of_a_load_has_curves_requests_doubts_and_the_command(data):
    rows = page_of(data, "loads").loads.rows
    assert sorted(row[4].text for row in rows) == ["closed", "open, poisson"]
    link = next(row[1].link for row in rows if row[4].text.startswith("open"))
    shown = views()["load"].page(data, link.parameters)
    assert [row[0].text for row in shown.levels.rows] == [
        "1 request/s", "2 requests/s (knee)", "4 requests/s", "8 requests/s",
    ]  # fmt: skip
    levels, frontier = shown.charts
    assert levels.title.endswith(": latency knee at 2 requests/s")
    assert levels.caption.startswith(
        "Solid: median times, and successful requests per second; dotted: 99th percentiles and goodput ("
    )
    assert "dashed grey: offered load; dotted vertical: the knee" in levels.caption
    texts = [row["text"] for layer in levels.specs[0]["layer"] for row in layer["data"]["values"] if "text" in row]
    assert texts == ["limit: 99 % within 500 ms", "knee"]
    assert [one["x"] for one in marks_of(frontier)] == [125.0, pytest.approx(1000 / 9), 100.0, pytest.approx(1000 / 11)]
    for panel in range(3):
        assert [one["state"] for one in marks_of(levels, panel)] == ["valid"] * 3 + ["invalid"]
    (doubt,) = shown.doubts
    assert (doubt.kind, doubt.points) == ("over_saturated", ("8 requests/s",))
    assert doubt.sentence == KINDS["over_saturated"].sentence
    (requests,) = shown.requests
    assert shown.drawn == "2 requests/s"
    assert "1 of 2 requests failed (refused)" in requests.caption
    assert [cell.text for cell in requests.table.rows[1]] == ["2", "0.5", "0.52", "-", "0.64", "refused"]
    assert shown.command == page_of(data, "run", run_id=shown.run_id).command
    assert page_of(data, "run", run_id=shown.run_id).load == link
    assert page_of(data, "hardware", model=LOADED).grid is None, "levels are not compared with calls"
    assert link in [row[1].link for row in page_of(data, "overview").loads.rows]
    other = shown.levels.rows[3][0].link
    assert views()["load"].page(data, other.parameters).drawn == "8 requests/s"


def test_the_page_of_a_load_draws_what_the_server_says_of_itself(tmp_path):
    run = make_load(concurrency=(1, 2))
    read = {
        "monitor_time": (0.0, 500.0, 1000.0),
        "server_waiting": (0.0, 3.0, 1.0),
        "server_kv_cache_percent": (1, 2, 9),
    }
    about = {"launch": 0, "phase": "measure", "unit": "", "started_at": run.started_at}
    kept = tuple(Samples(metric=name, values=tuple(map(float, values)), **about) for name, values in read.items())
    path = tmp_path / "own.duckdb"
    with Warehouse.open(path) as warehouse:
        warehouse.ingest(Alter.results(run, lambda one: dataclasses.replace(one, samples=kept)))
    with closing(Snapshots(path)) as snapshots, snapshots.reading() as found:
        page = page_of(found, "load", run_id=run.run_id)
    server = next(one for one in page.requests if one.title.startswith("The server during the load"))
    titles = [spec["layer"][0]["encoding"]["y"]["title"] for spec in server.specs]
    assert titles == [["Requests", "waiting"], ["KV cache", "in use (%)"]]
    assert page.drawn == server.legend[0].label == "1 in flight"


def test_a_load_test_is_listed_with_the_address_of_its_server_and_overlays_several_servers_only(tmp_path):
    extra = {"load": {"url": "http://there:8000/v1"}}
    with Warehouse.open(tmp_path / "own.duckdb") as warehouse:
        for tokens in (2, 64):
            run = make_load(rates=(1.0, 2.0))
            points = [dataclasses.replace(one.point, new_tokens=tokens) for one in run.results]
            noisy = [
                dataclasses.replace(one, extra=extra, validity="noisy", point=point)
                for one, point in zip(run.results, points, strict=True)
            ]
            device = dataclasses.replace(run.cell.device, name=None)
            mode = {**run.cell.runtime_mode, "arrivals": "at_once", "lengths_out": str(tokens)}
            cell = dataclasses.replace(run.cell, device=device, runtime_mode=mode)
            hardware = dataclasses.replace(run.hardware, device=device)
            warehouse.ingest(dataclasses.replace(run, cell=cell, hardware=hardware, results=tuple(noisy)))
    with closing(Snapshots(tmp_path / "own.duckdb")) as snapshots, snapshots.reading() as found:
        (row, _) = page_of(found, "loads").loads.rows
        page = views()["load"].page(found, row[1].link.parameters)
    assert {"http://there:8000/v1", "open, at once"} <= {cell.text for cell in row}
    assert page.charts
    assert page.overlaid == []


@pytest.mark.parametrize(
    ("values", "broad"),
    [
        (["2026-09-13", "cpu", "ok", "a model with a long name"], {0, 3}),
        (
            ["2026-09-13", "cpu", "a model with a long name", "ok"],
            {0, 1, 2, 3},
        ),  # none is beside cpu, and none beside ok
        (["2026-09-13", "cpu", None, "ok"], {0}),  # an unknown value is not in the card
        (["2026-09-13", "demo/model", "1", "2"], {0, 1}),  # is not broken in two lines
        (["2026-09-13", "1", "2", "3"], {0, 3}),
        (["1", None, None, None], {0}),
    ],
)
def test_a_value_that_would_be_alone_in_the_line_of_a_card_has_the_whole_line(values, broad):
    columns = {
        name: lambda row, place=place: text_cell(row[place]) for place, name in enumerate(("a", "model", "c", "d"))
    }
    table = grid(columns, [values], "")
    assert table.broad(table.rows[0]) == broad


def test_levels_of_several_lengths_have_their_lengths_in_their_names(tmp_path):
    short, long = (make_load(concurrency=(1, 2)) for _ in range(2))
    longer = [dataclasses.replace(one, point=dataclasses.replace(one.point, new_tokens=64)) for one in long.results]
    both = dataclasses.replace(short, results=(*short.results, *longer))
    with Warehouse.open(tmp_path / "own.duckdb") as warehouse:
        warehouse.ingest(both)
        ids = [row["result_id"] for row in warehouse.query("SELECT result_id FROM benchmark_results").dicts()]
        report = report_of(warehouse, ids, "own.duckdb")
    with closing(Snapshots(tmp_path / "own.duckdb")) as snapshots, snapshots.reading() as found:
        page = page_of(found, "load", run_id=both.run_id)
    levels = [row[0].text.removesuffix(" (knee)") for row in page.levels.rows]
    assert levels == ["1 in flight, s32 n2", "2 in flight, s32 n2", "1 in flight, s32 n64", "2 in flight, s32 n64"]
    assert page.drawn == "1 in flight, s32 n2"
    assert re.fullmatch(
        r"At most [\d.]+ requests/s answered at \d in flight, s32 n\d+; whether 99% of the requests were within the "
        r"limits is unknown \(4 of 4 levels not judged\)\.",
        page.answer,
    )
    assert [chart.subtitle.rpartition(" · ")[2] for chart in page.charts] == [
        *["sequence 32, 2 new tokens"] * 2,
        *["sequence 32, 64 new tokens"] * 2,
    ]
    (under_load,) = (part.sentences for part in report.summary if part.title == "Under load")
    assert re.search(r"at \d in flight, s32 n\d+", under_load[0])


def test_only_load_tests_have_a_load_page(data):
    (run,) = data.warehouse.query("SELECT max(run_id) AS id FROM benchmark_runs WHERE model_id = 'gpt2'").dicts()
    assert page_of(data, "run", run_id=run["id"]).load is None
    with pytest.raises(NotFoundError, match=f"is not a load test: see /runs/{run['id']}"):
        page_of(data, "load", run_id=run["id"])
    (load,) = data.warehouse.query(
        "SELECT max(run_id) AS id FROM benchmark_runs WHERE model_id = $model", {"model": LOADED}
    ).dicts()
    with pytest.raises(NotFoundError, match="no level 'x'"):
        page_of(data, "load", run_id=load["id"], result="x")


@pytest.mark.parametrize(
    ("mode", "axes", "is_knee"),
    [
        ({}, {"request_rate": 1.0}, "perhaps"),
        ({}, {}, True),
        ({"loop": "sideways"}, {"request_rate": 1.0}, False),
        ({"loop": 5, "slo": 5}, {"request_rate": 1.0}, {}),
    ],
)
def test_what_a_file_says_of_its_load_does_not_break_the_pages_of_others(tmp_path, mode, axes, is_knee):
    load, path = make_load(model_id="a"), tmp_path / "own.duckdb"
    first, second = load.results
    absurd = {**first.metrics, "goodput_share": 1e200, "requests_sent": 1e200, "time_to_first_token_ms": 1e-320}
    first = dataclasses.replace(
        first,
        point=dataclasses.replace(first.point, axes=axes),
        extra={"load": {"is_knee": is_knee}},
        metrics=absurd,
    )
    cell = dataclasses.replace(load.cell, runtime_mode={**load.cell.runtime_mode, **mode})
    with Warehouse.open(path) as warehouse:
        warehouse.ingest_all([dataclasses.replace(load, cell=cell, results=(first, second)), make_load(model_id="b")])
    with closing(Snapshots(path)) as snapshots, snapshots.reading() as found:
        assert len(page_of(found, "overview").loads.rows) == 2
        assert len(page_of(found, "loads").loads.rows) == 2
        own = page_of(found, "load", run_id=load.run_id)
        assert own.levels.rows
        json.dumps([chart.specs for chart in own.charts], allow_nan=False)
        assert page_of(found, "charts", chart="load_latency", model="b").charts


OWN = """
UPDATE benchmark_results SET
    other_metrics = map(['score'], [1000 / latency_median_ms]),
    extra = json_merge_patch(extra, '{"custom_metrics": {"score": {"unit": "points", "better": "higher"}}}')
WHERE status = 'ok' AND run_id IN (SELECT run_id FROM benchmark_runs WHERE runtime = 'onnxruntime')
"""


def test_a_custom_metric_that_became_worse_is_on_the_overview_and_can_raise_an_alert(database, tmp_path):
    path = shutil.copy(database, tmp_path / "own.duckdb")
    with Warehouse.open(path) as warehouse:
        with warehouse.transaction() as connection:
            connection.execute(OWN)
            connection.execute("UPDATE benchmark_runs SET host = 'score'")
        metric = judged_metric(warehouse, "score")
        update_changes(warehouse, metric)
        found = regressions(warehouse, [metric])
        raise_alerts(warehouse, found[:1])
    snapshots = Snapshots(Path(path))
    with snapshots.reading() as data:
        overview = page_of(data, "overview")
        trends = page_of(data, "trends", metric="score", selection="runtime=onnxruntime")
        with public_copy(data, EVERYTHING, "x", with_hosts=False) as taken:
            copied = page_of(taken, "overview")
    snapshots.close()
    listed = [[row[place].text for place in (4, 5, 8)] for row in overview.regressions.rows]
    ((points, change),) = [(points, change) for points, words, change in listed if words == "score (points)"]
    assert len(found) == 4
    assert points.endswith(" and 3 more")
    assert -17.5 < float(change.rstrip("%").replace("\N{MINUS SIGN}", "-")) < -16
    assert [row[5].text for row in overview.alerts.rows] == ["score (points)"]
    assert trends.drawn.notes.unraised + len(trends.drawn.notes.alerts) == 1
    for table in ("regressions", "alerts"):
        here, there = ([[cell.text for cell in row] for row in getattr(one, table).rows] for one in (overview, copied))
        published_words = {"score (points)": "host (points)"}  # without the name of the host
        assert there == [[published_words.get(text, text) for text in row] for row in here], table


def test_a_page_of_results_beyond_the_last_one_is_the_last_one(data):
    found = page_of(data, "results", all="1", page="99")
    assert found.first - 1 == (found.count - 1) // results_page.PAGE_ROWS * results_page.PAGE_ROWS > 0
    assert found.last == found.count
    assert found.following is None
    assert page_of(data, "results", page="99", model="never measured").count == 0


def test_each_column_of_the_results_sorts_and_missing_values_come_last(data):
    first = page_of(data, "results", columns="model")
    for heading in page_of(data, "results").grid.headings[1:]:
        assert heading.link is not None, heading.text
    for number, (name, _, _) in enumerate(first.columns):
        sort = f"-{name}" if number % 2 else name  # either way by turns: a page takes a tenth of a second
        assert page_of(data, "results", sort=sort).count == first.count, sort
    rows = page_of(data, "results", sort="latency_median_ms", columns="latency_median_ms", all="1").grid.rows
    values = [float(row[1].text.replace(",", "")) for row in rows if row[1].text != "-"]
    assert values == sorted(values)
    assert (
        page_of(data, "results", sort="fastest").grid.rows
        == page_of(data, "results", sort="latency_median_ms").grid.rows
    )
    with pytest.raises(UsageError, match="unknown sort 'speed'"):
        page_of(data, "results", sort="speed")


def test_ticked_results_are_side_by_side_with_ratios_to_the_first(data):
    rows = page_of(data, "results", model="bert-base-uncased", batch="1", sequence="32").grid.rows
    ids = tuple(row[0].tick for row in rows[:2])
    view = views()["results"]
    shown = view.page(data, site.parse(view.parameters, [("tick", one) for one in ids]))
    lines = {row[0].text: row[1:] for row in shown.side_by_side.rows}
    first, second = (cell.text for cell in lines["p50 ms"])
    ratio = float(second.split()[0]) / float(first)
    assert second.endswith(f"({ratio:.3g}\N{MULTIPLICATION SIGN})")
    assert not any(
        "\N{MULTIPLICATION SIGN}" in cell.text for name in ("launches", "95 % interval") for cell in lines[name]
    )
    assert page_of(data, "results").side_by_side is None


def test_a_metric_named_like_a_column_has_a_column_of_its_own(tmp_path):
    names = {"peak": "W", "model": "points", "latency_median_ms": "ms", "other_metrics.peak": ""}
    about = {CUSTOM_METRICS: {name: {"unit": unit, "better": "lower"} for name, unit in names.items()}}
    run = make_run(batch_sizes=(1,), sequence_lengths=(32,))
    (result,) = run.results
    own = dict(zip(("peak", "model", "other_metrics.peak"), (5.0, 6.0, 7.0), strict=True))
    result = dataclasses.replace(result, metrics={**result.metrics, **own}, extra=about)
    with Warehouse.open(tmp_path / "a.duckdb") as warehouse:
        warehouse.ingest(dataclasses.replace(run, results=(result,)))
    snapshots = Snapshots(tmp_path / "a.duckdb")
    with snapshots.reading() as data:
        page = page_of(data, "results", sort="other_metrics.peak")
        cells = dict(zip((heading.text for heading in page.grid.headings), page.grid.rows[0], strict=True))
        assert (cells["model"].text, cells["peak MB"].text) == (run.cell.workload.model_id, "910")
        assert [cells[name].text for name in ("peak (W)", "model (points)", "other metrics.peak")] == ["5", "6", "7"]
        assert page_of(data, "compare").metrics["latency_median_ms"] == "Latency per call, median (ms)"
    snapshots.close()


def test_a_rate_that_does_not_follow_from_the_median_is_marked(data):
    from visualize.pages.result_rows import rate_of

    row = {
        "throughput_samples_per_sec": 118.7,
        "latency_median_ms": 1.038,
        "batch_size": 1,
        "concurrency": 1,
        "other_metrics": {},
        "origin_format": None,
    }
    cell = rate_of("throughput_samples_per_sec")(row)
    assert (cell.text, cell.hint) == ("118.7*", "the mean call took 8.425 ms, the median call 1.038 ms")
    assert rate_of("throughput_samples_per_sec")({**row, "throughput_samples_per_sec": 963.0}).text == "963"
    assert rate_of("throughput_samples_per_sec")({**row, "concurrency": 8}).text == "118.7", "requests overlap"
    imported = rate_of("throughput_samples_per_sec")({**row, "origin_format": "google_benchmark"})
    assert imported.text == "118.7", "other tools count items in their own ways"


def test_every_chart_is_drawn_on_the_page_of_charts(data):
    from visualize.drawing.rows import charts

    for name in charts():
        page = page_of(data, "charts", chart=name, model="*")
        assert page.charts or page.missing or page.why, name
    assert page_of(data, "charts").charts[0].specs
    assert page_of(data, "charts", selection="runtime=onnxruntime").charts
    first, *_, last = page_of(data, "charts").models
    for model in (first, last):  # without a model, that of the selection is drawn
        assert page_of(data, "charts", selection=f"model={model}").model == model
    assert (
        page_of(data, "charts", model=first, selection=f"model={last}").why == f"the selection has no result of {first}"
    )
    assert page_of(data, "charts", selection="model=none-such").why == "no result is selected"
    profiles = [page_of(data, "charts", chart="flame_graph", model="*", selection=f"runtime={one}") for one in RUNTIMES]
    assert [bool(one.charts) for one in profiles] == [True, False]
    with pytest.raises(UsageError, match="unknown chart"):
        page_of(data, "charts", chart="pie")


def test_the_page_charts_says_that_older_results_of_a_long_selection_are_not_read(data, monkeypatch):
    whole = page_of(data, "charts", selection="model=bert-base-uncased")
    monkeypatch.setattr(charts_page, "MOST_RESULTS", 4)
    newest = page_of(data, "charts", selection="model=bert-base-uncased")
    assert newest.charts
    assert newest.missing[0] == "Older results: the newest 4 of the selection are read; narrow it"
    assert newest.missing[0] not in whole.missing


@pytest.fixture
def with_quality(tmp_path):
    """A warehouse with a run that has a quality, and an int8 one that has none."""
    quality = Quality(
        inputs="i",
        values={
            "kl_divergence": QualityValue(value=0.01, low=0.009, high=0.011),
            "perplexity_increase": QualityValue(value=1.5),
        },
        missing={"perplexity": "not_supported: no \x1b[31mtokenizer"},
        how={"point": "b16 s64"},
    )
    run = dataclasses.replace(make_run(batch_sizes=(1,), sequence_lengths=(32,)), quality=quality)
    with Warehouse.open(tmp_path / "a.duckdb") as warehouse:
        warehouse.ingest_all([run, make_run(batch_sizes=(1,), sequence_lengths=(32,), precision="int8")])
    snapshots = Snapshots(tmp_path / "a.duckdb")
    with snapshots.reading() as data:
        yield data, run
    snapshots.close()


def test_a_run_shows_the_quality_of_its_model_and_why_it_lacks_values(with_quality):
    data, run = with_quality
    facts = [value for name, value in page_of(data, "run", run_id=run.run_id).facts if name == "quality"]
    assert facts == [
        "KL 0.01 (0.009 .. 0.011) nats, perplexity change +1.5 % (at b16 s64)",
        "no perplexity: no \\x1b[31mtokenizer",
    ]


def _results_page(data, *given):
    view = views()["results"]
    return view.page(data, site.parse(view.parameters, given))


def test_quality_is_a_sortable_column_of_the_results(with_quality):
    data, _ = with_quality
    for sort in ("kl_divergence", "-kl_divergence"):
        chosen = ("precision", "kl_divergence", "perplexity_increase", "top1_agreement")
        page = _results_page(data, ("sort", sort), *(("columns", name) for name in chosen))
        assert [heading.text for heading in page.grid.headings][1:] == [
            "precision", "KL (nats)", "perplexity change (%)", "top-1",
        ]  # fmt: skip
        rows = [[cell.text for cell in row][1:] for row in page.grid.rows]
        assert rows == [["float32", "0.01", "1.5", "-"], ["int8", "-", "-", "-"]]  # unknown ones come last


def test_a_long_heading_of_numbers_has_room_for_more_than_a_word():
    """Where a table is wider than the window, its headings would have a line for each word."""
    names = ("p50 ms", "engine time per output token (ms)")
    parts = environment().get_template("parts.html").module
    drawn = str(parts.table(grid(dict.fromkeys(names, str), (), "", names), str))
    assert re.findall(r'class="(n.*?)"', drawn) == ["n", "n words"]


def test_a_file_of_many_models_names_two_of_them(tmp_path):
    file = read_file(FIXTURES / "imports/google_benchmark/repetitions.json")
    runs = list(importer_for(file).runs(file))
    models = sorted({run.cell.workload.model_id for run in runs})
    with Warehouse.open(tmp_path / "own.duckdb") as warehouse:
        warehouse.ingest_all(runs)
    with closing(Snapshots(tmp_path / "own.duckdb")) as snapshots, snapshots.reading() as found:
        (row,) = page_of(found, "overview").imports.rows
    assert len(models) > 2
    assert row[3].text == f"{models[0]}, {models[1]} and {len(models) - 2} more"
    assert row[3].hint == ", ".join(models[2:])


def test_options_that_lie_beneath_others_are_counted(tmp_path):
    with Warehouse.open(tmp_path / "own.duckdb") as warehouse:
        for runtime, slowdown in (("eager", 1.0), ("onnxruntime", 1.0), ("openvino", 0.5)):
            warehouse.ingest(make_run(runtime=runtime, slowdown=slowdown, batch_sizes=(1,), sequence_lengths=(32,)))
    snapshots = Snapshots(tmp_path / "own.duckdb")
    with snapshots.reading() as found:
        page = page_of(found, "recommend")
        chosen = page_of(found, "recommend", among="runtime=eager|openvino")
    snapshots.close()
    assert "Beneath others, at the same place: 1 option." in page.chart.caption
    assert "Beneath" not in chosen.chart.caption


def test_a_long_setting_is_whole_on_the_page_of_its_run_and_has_a_line_of_its_own(tmp_path):
    run = Alter.mode(make_run(), kernel="x" * 100)
    with Warehouse.open(tmp_path / "own.duckdb") as warehouse:
        warehouse.ingest(run)
    snapshots = Snapshots(tmp_path / "own.duckdb")
    with snapshots.reading() as found:
        facts = dict(page_of(found, "run", run_id=run.run_id).facts)
    snapshots.close()
    assert facts["runtime"] == f"eager (kernel={'x' * 100})"
    template = environment().from_string("{% from 'parts.html' import facts %}{{ facts(rows) }}")
    shown = template.render(rows=[("runtime", facts["runtime"]), ("task", facts["task"])])
    assert re.findall(r"<div( class=\"whole\")?><dt>(\w+)", shown) == [(' class="whole"', "runtime"), ("", "task")]


def test_the_answer_of_a_query_is_cards_on_a_phone_and_evidence_is_in_words(data):
    console = views()["console"]
    shown = render(LiveSite(), console, data, site.parse(console.parameters, [("sql", "SELECT 1 AS a, 2 AS b")]))
    assert '<table class="cards-on-phone"' in shown
    row = {"extra": json.dumps({"doubts": [{"kind": "undated", "evidence": {"read_as": "UTC", "offset": None}}]})}
    (note,) = noted_doubts([row], lambda row: "b1")
    assert note.evidence == "read as UTC, offset unknown"
    for launches, expected in (([0, 2], "in launches 1, 3"), (["a"], ""), (5, "")):  # a run file may state anything
        row = {"extra": json.dumps({"doubts": [{"kind": "undated", "evidence": {"launches": launches}}]})}
        (note,) = noted_doubts([row], lambda row: "b1")
        assert note.evidence == expected
