"""What views say: the console's limits, and the words of the commands that have the same contents."""

from __future__ import annotations

import pytest

from benchmarking.core.errors import UsageError
from tests.helpers.records import make_run
from visualize.pages import parameters
from visualize.pages.site import NotFoundError, views
from visualize.pages.snapshot import Snapshots
from visualize.pages.views import console


@pytest.fixture(scope="module")
def data(database):
    snapshots = Snapshots(database)
    with snapshots.reading() as found:
        yield found
    snapshots.close()


def page_of(data, name, **given):
    view = views()[name]
    return view.page(data, parameters.parse(view.parameters, given.items()))


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("DELETE FROM benchmark_runs", "DELETE is not read-only"),
        ("CREATE TABLE a (b INT)", "CREATE is not read-only"),
        ("SET memory_limit = '1TB'", "SET is not read-only"),
        ("SELECT 1; SELECT 2", "2 statements: give one at a time"),
        ("SELECT * FROM read_text('/etc/passwd')", "disabled by configuration"),
        ("SELECT * FROM 'https://example.com/a.csv'", "disabled by configuration"),
        ("SELECT nothing FROM benchmark_runs", "line 1, column 8"),
    ],
)
def test_the_console_reads_this_warehouse_and_nothing_else(data, sql, expected):
    page = page_of(data, "console", sql=sql)
    assert page.grid is None
    assert expected in page.trouble


def test_an_endless_question_ends_at_the_time_limit(data, monkeypatch):
    monkeypatch.setattr(console, "TIME_LIMIT_S", 0.5)
    page = page_of(data, "console", sql="SELECT sum(a.range * b.range) FROM range(10000000) a, range(10000000) b")
    assert page.trouble == "no answer within 0.5 s: narrow it"


def test_a_long_answer_is_cut_on_the_page_and_whole_in_the_file(data):
    sql = "SELECT range AS n FROM range(2000)"
    page = page_of(data, "console", sql=sql)
    assert len(page.grid.rows) == console.MOST_ROWS
    assert page.has_more
    (csv,) = [one for one in console.DOWNLOADS if one.name == "console_csv"]
    assert "".join(csv.file(data, console.Statement(sql=sql)).parts).count("\n") == 2001


@pytest.mark.parametrize("sql", console.EXAMPLES.values(), ids=console.EXAMPLES)
def test_every_example_has_an_answer(data, sql):
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
    ],
)
def test_an_answer_is_drawn_where_a_number_is_over_something(data, sql, is_drawn):
    assert (page_of(data, "console", sql=sql).chart is not None) is is_drawn


def test_a_table_is_described_and_an_unknown_one_refused(data):
    page = page_of(data, "console", table="series_alias")
    described = [one for one in page.dictionary if one.columns]
    assert [one.name for one in described] == ["series_alias"]
    with pytest.raises(UsageError, match="did you mean"):
        page_of(data, "console", table="serie_alias")


def test_a_trend_has_the_change_its_levels_and_both_runs_to_compare(data):
    page = page_of(data, "trends", selection="model=bert-base-uncased", only_changes="1")
    assert page.count == 8
    assert len(page.lines) == 4
    assert page.drawn.chart.title.startswith("+20.")
    assert "(worse) since 2026-09-13, confirmed" in page.drawn.chart.title
    levels = page.drawn.chart.spec["layer"][1]["data"]["values"]
    assert levels[1]["level"] / levels[0]["level"] == pytest.approx(1.2, abs=0.01)
    (change,) = page.drawn.changes.rows
    assert change[-1].link.view == "compare"
    assert change[-1].link.parameters.a.startswith("run=")


def test_a_series_is_drawn_by_its_id_and_an_unknown_one_not_found(data):
    chosen = page_of(data, "trends").lines[-1].link.parameters.series
    assert [line.is_drawn for line in page_of(data, "trends", series=chosen).lines][-1]
    with pytest.raises(NotFoundError, match="no series has latency_median_ms"):
        page_of(data, "trends", series="0123456789")


def test_a_recommendation_says_what_the_command_says(data, database, capsys):
    from db.commands.recommend import main

    main(["gpt2", "--latency-ms", "40", "--db-path", str(database)])
    printed = " ".join(capsys.readouterr().out.split())
    page = page_of(data, "recommend", model="gpt2", latency_ms="40")
    for workload in page.workloads:
        words = page_of(data, "recommend", model="gpt2", latency_ms="40", workload=workload).words
        assert words.title in printed
        assert words.advice in printed
    assert page.has_best


def test_a_limit_is_a_number(data):
    with pytest.raises(UsageError, match="latency_ms=fast: expected a number from 0"):
        page_of(data, "recommend", latency_ms="fast")


@pytest.mark.parametrize("given", [{"model": "none"}, {"workload": "none"}])
def test_an_unknown_model_or_workload_is_not_found(data, given):
    with pytest.raises(NotFoundError):
        page_of(data, "recommend", **given)


def test_speed_ups_are_over_the_chosen_baseline(data):
    page = page_of(data, "hardware", model="bert-base-uncased", point="b1 s32")
    assert "onnxruntime" in page.baselines[0]
    by_default = [row[1].text for row in page.grid.rows]
    assert by_default[-1] == "1.00x"
    chosen = page_of(data, "hardware", model="bert-base-uncased", point="b1 s32", baseline=page.baselines[0])
    assert chosen.grid.rows[0][1].text == "1.00x"
    assert float(by_default[0].rstrip("x")) * float(chosen.grid.rows[-1][1].text.rstrip("x")) == pytest.approx(
        1, abs=0.02
    )


@pytest.mark.parametrize(
    ("launches", "title"), [(3, "Test CPU · eager · float32 is 2 times as fast as "), (1, "Median latency")]
)
def test_the_hardware_chart_names_a_winner_only_where_intervals_support_it(tmp_path, launches, title):
    from db.warehouse import Warehouse

    with Warehouse.open(tmp_path / "two.duckdb") as warehouse:
        for runtime, factor in (("eager", 1), ("onnxruntime", 2)):
            warehouse.ingest(make_run(runtime=runtime, slowdown=factor, launches=launches, iterations=4))
    snapshots = Snapshots(tmp_path / "two.duckdb")
    with snapshots.reading() as two:
        assert page_of(two, "hardware", point="b1 s32").chart.title.startswith(title)
    snapshots.close()


def test_an_empty_warehouse_has_every_page(tmp_path):
    from db.warehouse import Warehouse
    from visualize.pages.site import LiveSite, render

    Warehouse.open(tmp_path / "empty.duckdb").close()
    snapshots = Snapshots(tmp_path / "empty.duckdb")
    with snapshots.reading() as empty:
        for view in views().values():
            if view.is_in_navigation:
                assert "<h1>" in render(LiveSite(), view, empty, view.parameters())
    snapshots.close()
