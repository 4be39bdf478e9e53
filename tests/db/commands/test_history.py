"""`benchhouse history`, `regressions` and `series` on a warehouse with a year's work in it."""

import json
import re
import shutil
from dataclasses import replace

import pytest

from benchmarking.cli import main
from benchmarking.core.metrics import CUSTOM_METRICS, JUDGED
from db.warehouse import Warehouse

QUIET = [10.0, 10.1, 9.9, 10.0, 10.1, 9.9, 10.05, 9.95, 10.0, 10.1, 9.9, 10.0]
WORSE = [value * 1.2 for value in QUIET]
BETTER = [value * 0.8 for value in QUIET]


@pytest.fixture(scope="module")
def kept():
    """The filled database, once it is made."""
    return []


@pytest.fixture
def filled(tmp_path, tmp_path_factory, empty_database, write_history, kept):
    """Path of a database: bert's latency rises on 2026-01-13, gpt2's falls, vit's rises and comes back, t5 is quiet."""
    if not kept:
        path = shutil.copy2(empty_database, tmp_path_factory.mktemp("histories") / "a.duckdb")
        with Warehouse.open(path) as warehouse:
            write_history(warehouse, [*QUIET, *WORSE], model_id="bert")
            write_history(warehouse, [*QUIET, *BETTER], model_id="gpt2")
            write_history(warehouse, [*QUIET, *WORSE, *QUIET], model_id="vit")
            write_history(warehouse, QUIET, model_id="t5")
        kept.append(path)
    return shutil.copy2(kept[0], tmp_path / "b.duckdb")


@pytest.fixture
def asked(filled, capsys):
    """A function that runs `benchhouse WORDS` on it, and gives exit code, stdout and stderr."""

    def ask(*words):
        code = main([*words, "--db-path", str(filled)])
        out, err = capsys.readouterr()
        return code, out, err

    return ask


def rows(path, sql):
    with Warehouse.open(path, read_only=True) as warehouse:
        return [tuple(row.values()) for row in warehouse.query(sql).dicts()]


def series_of(path):
    return dict(rows(path, "SELECT model_id, series_id FROM series"))


def test_a_history_is_a_line_with_bars_newest_value_and_changes(asked):
    code, out, _ = asked("history", "model=bert")
    assert code == 0
    head, shared, _, headings, _, line, *_ = out.splitlines()
    assert head == "latency_median_ms"
    assert shared == "model bert, device cpu, runtime eager, precision float32, hardware Test CPU"
    assert headings.split() == ["series", "point", "runs", "history", "ms", "changes"]
    assert line.split()[1:] == [
        *("b1", "s32", "24", "▁" * 10 + "█" * 10, "12"),
        *("+20.0%", "2026-01-13", "0012ffffff", "confirmed"),
    ]


@pytest.mark.parametrize("columns", ["40", "80", "120"])
def test_on_a_terminal_a_history_is_never_folded_and_no_number_is_lost(asked, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    code, out, _ = asked("history", "model=bert")
    assert code == 0
    table = out.split("\n\n", 1)[1].rsplit("\n\n", 1)[0]
    assert max(map(len, table.splitlines())) <= int(columns)
    (bars,) = [word for word in table.split() if set(word) <= set("▁▂▃▄▅▆▇█")]
    assert len(bars) == min(100, int(columns)) // 5
    assert "24" in table.split()
    assert "12" in table.split()
    assert "+20" in table


def test_a_change_that_the_newest_run_first_shows_is_suspected_although_an_earlier_run_has_its_level(
    tmp_path, empty_database, write_history, capsys
):
    for runs, state in ((2, "suspected"), (3, "confirmed")):
        path = shutil.copy2(empty_database, tmp_path / f"{runs}.duckdb")
        with Warehouse.open(path) as warehouse:
            write_history(warehouse, [*QUIET, *WORSE[:runs]], model_id="bert")
        assert main(["history", "--db-path", str(path)]) == 0
        out = " ".join(capsys.readouterr().out.split())
        assert f"2026-01-13 0012ffffff {state}" in out
        said = "suspected: first found with the newest run; the next run of its series confirms or withdraws it"
        assert (said in out) is (state == "suspected")


def test_runs_that_are_sides_of_a_comparison_are_counted_below_their_history(asked, filled):
    _, _, err = asked("history", "model=bert")
    assert err == ""
    sides = [run for (run,) in rows(filled, "SELECT run_id FROM benchmark_runs WHERE model_id = 'bert' LIMIT 2")]
    with Warehouse.open(filled) as warehouse:
        warehouse.query(
            "UPDATE benchmark_runs SET tags = MAP {'ab': ?, 'ab_side': 'b'} WHERE run_id IN (SELECT unnest(?))",
            ["01a21ee5-c6fc-7ec2-8988-af422a49df53", sides],
        )
    _, _, err = asked("history", "model=bert")
    assert err.startswith("benchhouse history: 2 runs of these by benchhouse ab, of which a side may have other code")
    assert asked("history", "model=gpt2")[2] == ""


def test_history_shows_the_selection_but_detects_changes_in_the_whole_series(asked):
    _, out, _ = asked("history", "model=bert,since=2026-01-13", "--json")
    (history,) = json.loads(out)
    assert [point["value"] for point in history["points"]] == pytest.approx(WORSE)
    (change,) = history["changes"]
    assert (change["value_before"], change["value_after"]) == pytest.approx((10.0, 12.0))
    assert change["last_good"]["git_commit"].startswith("0011f")
    assert json.loads(asked("history", "model=bert,until=2026-01-12", "--json")[1])[0]["changes"] == []


def test_history_shows_as_many_series_as_the_limit_and_counts_the_rest(asked):
    code, out, err = asked("history", "--rows", "2")
    assert (code, out.count("b1 s32")) == (0, 2)
    assert err == "benchhouse history: 2 of 4 series: narrow the selection, or raise --rows\n"
    assert [line.split()[1] for line in asked("history", "--only-changes")[1].splitlines() if "b1 s32" in line] == [
        *("bert", "gpt2", "vit")
    ]


def test_changes_are_looked_for_in_all_series_however_few_are_shown(asked):
    """Among the first three by name, t5 has none."""
    code, out, err = asked("history", "--only-changes", "--rows", "3")
    assert (code, [line.split()[1] for line in out.splitlines() if "b1 s32" in line]) == (0, ["bert", "gpt2", "vit"])
    assert err == ""
    (shown,) = json.loads(asked("history", "--only-changes", "--rows", "1", "--json")[1])
    assert shown["model_id"] == "bert"
    assert asked("history", "--only-changes", "--rows", "1")[2] == (
        "benchhouse history: 1 of 3 series with a change: narrow the selection, or raise --rows\n"
    )


def test_a_quantization_is_the_precision_of_its_history_in_json_too(tmp_path, empty_database, write_history, capsys):
    path = shutil.copy2(empty_database, tmp_path / "a.duckdb")
    with Warehouse.open(path) as warehouse:
        write_history(warehouse, QUIET, precision="other")
        mode = json.dumps({"quantization": "Q4_K - Medium"})
        warehouse.query("UPDATE benchmark_runs SET runtime_mode = ?", [mode])
    assert main(["history", "--json", "--db-path", str(path)]) == 0
    (history,) = json.loads(capsys.readouterr().out)
    assert history["precision"] == "Q4_K - Medium"


def test_history_stores_change_points_only_with_update(asked, filled):
    asked("history")
    assert rows(filled, "SELECT count(*) FROM change_points") == [(0,)]
    _, _, err = asked("history", "model=t5", "--update")
    assert "searched 4 series with new results: 4 new change points, 4 confirmed, 0 withdrawn" in err
    assert rows(filled, "SELECT count(*) FROM change_points") == [(4,)]


def test_history_with_nothing_to_show_is_not_enough_data(asked):
    assert asked("history", "model=nobody")[0] == 3
    assert asked("history", "--metric", "compile_s")[0] == 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("history", "--metric", "latency"), "unknown metric 'latency'"),
        (("history", "modell=gpt2"), "unknown selection 'modell'"),
        (("history", "--rows", "0"), "takes a whole number from 1"),
        (("regressions", "--since", "yesterday"), "expected a date or time in ISO 8601"),
        (("regressions", "--metric", "latency_median_ms,speed"), "unknown metric 'speed'"),
        (("series", "alias", "zzzz", "yyyy", "--reason", "x"), "no series has an id that begins with 'zzzz'"),
        (("series", "alias", "zzzz", "yyyy", "--reason", " "), "--reason is empty"),
        (("series", "unalias", "z"), "too short"),
        (("series", "rename"), "unknown action 'rename'"),
    ],
)
def test_invalid_requests_are_one_line_and_exit_code_2(asked, words, message):
    code, out, err = asked(*words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err


def test_regressions_are_worst_first_and_since_a_date(asked):
    code, out, err = asked("regressions", "--since", "2026-01-02")
    assert max(map(len, out.splitlines())) <= 100
    assert code == 0
    assert "searched 4 series" in err
    lines = [line.split() for line in out.splitlines() if "b1 s32" in line]
    assert [line[:4] for line in lines] == [["+20.0%", "10", "12", "bert"], ["+20.0%", "10", "12", "vit"]]
    assert lines[0][-4:] == ["2026-01-13", "0011ffffff..0012ffffff", "confirmed", "+20.0%"]
    assert lines[1][-2:] == ["+0.0%", "recovered"]
    assert "but of a small change a few runs before or after that; benchhouse bisect tells" in " ".join(out.split())
    assert asked("regressions", "--since", "2026-01-14")[1:] == (
        "no regressions of latency_median_ms since 2026-01-14\n",
        "",
    )
    assert "vit" not in asked("regressions", "--until", "2026-01-13", "model=bert")[1]


def test_regressions_are_the_same_in_json_and_markdown(asked):
    asked("regressions")
    _, out, _ = asked("regressions", "--json")
    first, second = json.loads(out)
    assert (first["model_id"], first["times_worse"], first["together"]) == ("bert", pytest.approx(1.2), None)
    assert second["relative_change_now"] == pytest.approx(0, abs=1e-9)
    _, out, _ = asked("regressions", "--markdown", "--since", "2026-01-01")
    assert out.startswith("**Regressions of latency\\_median\\_ms since 2026-01-01**\n")
    assert "| +20.0% | 10 | 12 | ms | bert | b1 s32 | 2026-01-13 | 0011ffffff..0012ffffff | confirmed | +20.0% |" in out


def test_no_regressions_of_series_that_cannot_show_one_is_not_all_that_is_said(asked, filled, make_run):
    assert asked("regressions", "model=t5")[1] == "no regressions of latency_median_ms\n"
    with Warehouse.open(filled) as warehouse:
        warehouse.ingest(make_run(model_id="new", batch_sizes=(1, 2), sequence_lengths=(32,)))
    assert asked("regressions", "model=new|t5")[1].endswith(
        "latency_median_ms: 2 of 3 series cannot show one: fewer than 4 of their runs count\n"
    )
    nothing = asked("regressions", "model=brt")[1], asked("alert", "list", "model=brt")[1]
    assert [text.splitlines()[-1] for text in nothing] == [
        "latency_median_ms: no series is selected; no model 'brt' is stored: did you mean bert?",
        "no alerts; no model 'brt' is stored: did you mean bert?",
    ]
    _, out, err = asked("regressions", "model=new|t5", "--json")  # what a script reads stays JSON
    assert json.loads(out) == []
    assert err.endswith(
        "benchhouse regressions: latency_median_ms: 2 of 3 series cannot show one: fewer than 4 of their runs count\n"
    )


def test_regressions_without_an_update_only_read(asked, filled):
    assert asked("regressions", "--no-update") == (0, "no regressions of latency_median_ms\n", "")
    assert rows(filled, "SELECT count(*) FROM history_scans") == [(0,)]


def test_a_drop_in_throughput_is_a_regression_and_a_rise_is_none(asked):
    _, out, _ = asked("regressions", "--metric", "throughput_samples_per_sec", "--json")
    assert [(one["model_id"], round(one["relative_change"], 3)) for one in json.loads(out)] == [
        ("bert", -0.167),
        ("vit", -0.167),
        # gpt2 became faster
    ]


def test_a_rate_that_fell_to_nothing_is_a_regression_to_every_command(asked, filled):
    """The level of zeros is never the normal one, also once the gate has ten of them."""
    sql = "UPDATE benchmark_results SET throughput_samples_per_sec = 0 WHERE latency_median_ms > 11"
    with Warehouse.open(filled) as warehouse:
        warehouse.query(sql)
    of_rate = ("model=bert|vit", "--metric", "throughput_samples_per_sec")
    _, out, _ = asked("regressions", *of_rate)
    lines = [line.split() for line in out.splitlines() if "b1 s32" in line]
    assert [(*line[:1], line[2], line[3]) for line in lines] == [("-100.0%", "0", "bert"), ("-100.0%", "0", "vit")]
    assert (lines[0][-1], lines[1][-1]) == ("-100.0%", "+0.0%")
    worst = json.loads(asked("regressions", *of_rate, "--json")[1])[0]
    assert (worst["relative_change"], worst["times_worse"]) == (-1.0, "Infinity")
    bert, vit = json.loads(asked("history", *of_rate, "--json")[1])
    assert [(len(one["points"]), one["left_out"]) for one in (bert, vit)] == [(24, 0), (36, 0)]
    assert [change["relative_change"] for change in vit["changes"]] == [-1.0, "Infinity"]
    assert "from 0 2026-01-25" in asked("history", *of_rate)[1]
    assert "2 alerts stored" in asked("alert", "raise", *of_rate)[1]
    with Warehouse.open(filled) as warehouse:
        warehouse.query("DELETE FROM alerts")
    code, out, _ = asked("check", "model=bert", *of_rate[1:])
    assert (code, "-100.0%" in out) == (1, True)
    assert asked("check", "model=vit", *of_rate[1:])[0] == 0


OWN = """
UPDATE benchmark_results SET
    other_metrics = map(['score', 'drafts'], [1000 / latency_median_ms, 1000 / latency_median_ms]),
    extra = json_merge_patch(extra, '{"custom_metrics": {"score": {"unit": "points", "better": "higher"},
        "drafts": {"unit": "drafts", "better": "lower"}}}')
"""


@pytest.fixture
def own(database, write_history, capsys):
    """A function as `asked`, on a history in which two own metrics, of opposite directions, fall by a sixth."""
    with Warehouse.open(database) as warehouse:
        write_history(warehouse, [*QUIET, *WORSE], model_id="bert")
        with warehouse.transaction() as connection:
            connection.execute(OWN)

    def run(*words):
        code = main([*words, "--db-path", str(database)])
        return code, capsys.readouterr().out

    return run


def test_custom_metrics_are_gated_listed_and_alerted_in_their_direction(own, database):
    gate = ("check", "--run", "bert-eager-12", "--json", "--no-alerts", "--metric")
    judged = {name: own(*gate, name) for name in ("score", "drafts")}
    verdicts = {name: [one["verdict"] for one in json.loads(out)["findings"]] for name, (_, out) in judged.items()}
    assert (verdicts, judged["score"][0], judged["drafts"][0]) == (
        {"score": ["regressed"], "drafts": ["improved"]},
        1,
        0,
    )
    _, out = own("regressions", "--metric", "score,drafts,latency_median_ms", "--json")
    found = {one["metric"]: round(one["relative_change"], 3) for one in json.loads(out)}
    assert found == {"latency_median_ms": 0.2, "score": -0.167}
    listed = "SELECT metric, unit, round(times_worse, 3) FROM regressions ORDER BY metric"
    assert rows(database, listed) == [("latency_median_ms", "ms", 1.2), ("score", "points", 1.2)]
    assert re.search("-16.7% +100 +83.33 +points", own("regressions", "--metric", "score")[1])
    assert own("alert", "raise", "--metric", "score,drafts") == (0, "1 alert stored, 0 already known\n")
    assert own("alert", "raise", "--metric", "score") == (0, "0 alerts stored, 1 already known\n")


def test_the_view_lists_the_metrics_of_the_program(filled):
    with Warehouse.open(filled) as warehouse:
        (row,) = warehouse.query("SELECT sql FROM duckdb_views() WHERE view_name = 'regressions'").dicts()
    named = re.findall(r"'(\w+)', '([^']+)', '(lower|higher)'", row["sql"])
    assert sorted(named) == sorted((metric.column, metric.unit, metric.better) for metric in JUDGED.values())


def test_a_session_in_which_everything_moved_is_reported_as_environment(database, write_history, capsys):
    with Warehouse.open(database) as warehouse:
        for model in ("a", "b", "c", "d", "e"):
            write_history(warehouse, [*QUIET, *WORSE], model_id=model, shared_sessions=True)
    assert main(["regressions", "--db-path", str(database)]) == 0
    out = capsys.readouterr().out
    assert out.count("confirmed, ") == 5
    assert (
        "environment? in session session-12: 5 of 5 combinations of model, runtime and precision became worse, by "
        "20.0% (median" in " ".join(out.split())
    )


def test_series_are_listed_with_their_runs_and_dates(asked, filled):
    _, out, _ = asked("series", "list", "model=bert")
    assert out.splitlines()[2].split() == [
        *(series_of(filled)["bert"], "bert", "Test", "CPU", "eager", "float32", "b1", "s32", "24"),
        *("2026-01-01", "2026-01-24"),
    ]
    (listed,) = json.loads(asked("series", "list", "model=t5", "--json")[1])
    assert (listed["runs"], listed["hashed_keys"]["model_id"], listed["read_as"]) == (12, "t5", None)


def test_an_alias_is_followed_and_never_makes_a_chain_or_a_circle(asked, filled):
    ids = series_of(filled)
    bert, gpt2, vit = ids["bert"], ids["gpt2"], ids["vit"]
    code, out, _ = asked("series", "alias", bert[:8], gpt2, "--reason", "renamed")
    assert (code, out.splitlines()[0]) == (0, f"{bert} is now an alias of {gpt2}")
    assert '  model_id: "bert" / "gpt2"' in out
    assert rows(filled, "SELECT series_id, canonical_series_id, reason FROM series_alias") == [(bert, gpt2, "renamed")]
    assert asked("history", f"series={bert[:8]}", "--json")[1] == asked("history", f"series={gpt2}", "--json")[1]
    assert asked("series", "alias", gpt2, bert, "--reason", "x")[0] == 2
    assert asked("series", "alias", bert, vit, "--reason", "x")[0] == 2
    assert asked("series", "alias", vit, vit, "--reason", "x")[0] == 2
    assert "that moved along: 1" in asked("series", "alias", gpt2, vit, "--reason", "again")[1]
    assert asked("series", "alias", ids["t5"], bert, "--reason", "through an alias")[1].startswith(
        f"{ids['t5']} is now an alias of {vit}\n"
    )
    ends = rows(filled, "SELECT DISTINCT canonical_series_id FROM series_alias")
    assert ends == [(vit,)]
    assert asked("history", "--json")[1].count('"series_id"') == 1
    assert asked("series", "unalias", bert)[1].startswith(f"{bert} is no longer an alias of {vit}\n")
    assert asked("series", "unalias", bert)[0] == 2


def test_series_of_incomparable_numbers_are_not_joined(asked, filled):
    ids = series_of(filled)
    with Warehouse.open(filled) as warehouse:
        keys = "json_merge_patch(hashed_keys, '{\"metric_definition\": 2}')"
        warehouse.query(f"UPDATE series SET hashed_keys = {keys} WHERE model_id = 'vit'")
    code, _, err = asked("series", "alias", ids["bert"], ids["vit"], "--reason", "x")
    assert (code, "differ in metric_definition: their numbers are not comparable" in err) == (2, True)


def test_pooled_percentiles_are_not_in_the_history(filled, asked):
    with Warehouse.open(filled) as warehouse:
        warehouse.query("UPDATE benchmark_results SET latency_p90_ms = 2 * latency_median_ms")
        warehouse.query("""UPDATE benchmark_results SET pooled_quantiles = ['latency_p90_ms']
            WHERE latency_median_ms > 11 AND starts_with(run_id, 'bert')""")
    code, out, _ = asked("history", "model=bert", "--metric", "latency_p90_ms", "--json")
    (series,) = json.loads(out)
    assert (code, len(series["points"]), series["changes"], series["left_out"]) == (0, 12, [], 12)
    _, out, _ = asked("regressions", "--metric", "latency_p90_ms", "--json")
    assert {one["model_id"] for one in json.loads(out)} == {"vit"}


def test_results_of_series_without_any_history_are_counted(asked, filled):
    with Warehouse.open(filled) as warehouse:
        warehouse.query("""UPDATE benchmark_results SET validity = 'invalid'
            WHERE starts_with(run_id, 'gpt2') OR starts_with(run_id, 't5')""")
    _, out, err = asked("history")
    assert "gpt2" not in out
    assert f"series without a history: {len(QUIET) * 3} results that failed, are invalid" in err
    assert err.endswith("or have no latency_median_ms above 0\n")
    _, _, err = asked("history", "--metric", "latency_p99_ms", "model=gpt2")
    assert "have no latency_p99_ms above 0 (a percentile needs more calls than a median)" in err


def test_regressions_name_a_slow_trend_and_blame_no_commit(tmp_path, empty_database, write_history, capsys):
    """10 ms and 0.3 % more each night; another series gets faster as slowly, which is no regression."""
    path = str(shutil.copy2(empty_database, tmp_path / "leak.duckdb"))
    noise = [1 + (place * 7 % 11 - 5) / 2000 for place in range(40)]
    with Warehouse.open(path) as warehouse:
        for model, per_run in (("bert", 1.003), ("gpt2", 1 / 1.003)):
            write_history(warehouse, [10 * per_run**run * one for run, one in enumerate(noise)], model_id=model)

    def asked(*words):
        assert main(["regressions", *words, "--db-path", path]) == 0
        return capsys.readouterr().out

    out = " ".join(asked().split())
    assert out.startswith("no regressions, but trends")
    found = r"trend: bert, .* b1 s32: latency_median_ms \+0\.30% a run, \+12\.4% over 40 runs since 2026-01-01"
    assert re.search(found, out)
    assert "no single run or commit is to blame" in out
    assert "gpt2" not in out
    (trend,) = json.loads(asked("--json"))
    assert (trend["state"], trend["model_id"], trend["runs"], trend["first_bad_commit"]) == ("trend", "bert", 40, None)
    assert trend["change_per_run"] == pytest.approx(0.003, rel=0.02)
    assert "- trend: bert" in asked("--markdown")
    assert asked("model=gpt2").startswith("no regressions of")
    assert asked("--until", "2026-01-20").startswith("no regressions of")
    assert main(["history", "model=bert", "--only-changes", "--json", "--db-path", path]) == 0
    (shown,) = json.loads(capsys.readouterr().out)
    assert (shown["changes"], shown["trend"]["runs"]) == ([], 40)
    assert shown["trend"]["per_run"] == pytest.approx(0.003, rel=0.02)


def test_a_change_between_runs_of_one_commit_has_the_date_of_the_run_and_no_commit_to_blame(asked, filled):
    with Warehouse.open(filled) as warehouse, warehouse.transaction() as connection:
        connection.execute("UPDATE benchmark_runs SET git_commit = repeat('a', 40), git_commit_time = '2025-06-01'")
    _, out, _ = asked("history", "model=bert")
    assert "+20.0% 2026-01-13 same commit confirmed" in out
    assert "each date is the first changed commit's, or the first changed run's if no commit changed" in out
    _, out, _ = asked("regressions", "model=bert")
    words = " ".join(out.split())
    assert "2026-01-13 2026-01-12 00:00 .. 2026-01-13" in words
    assert "the cause most likely lies after the first run, up to and including the second, but of a small" in words
    assert "bisect" not in words
    assert "aaaa" not in out
    for since, found in (("2026-01-14", "no regressions of"), ("2026-01-13", "latency_median_ms, model bert")):
        assert asked("regressions", "model=bert", "--since", since)[1].startswith(found)
    _, out, _ = asked("series", "list", "model=bert")
    assert out.splitlines()[2].split()[-2:] == ["2026-01-01", "2026-01-24"]
    asked("alert", "raise", "model=bert")
    _, out, _ = asked("alert", "list", "model=bert")
    assert "aaaaaaa, unchanged" in " ".join(out.split())


def test_a_second_regression_of_an_unchanged_commit_has_an_alert_of_its_own(
    tmp_path, empty_database, write_history, capsys
):
    path = str(shutil.copy2(empty_database, tmp_path / "twice.duckdb"))
    with Warehouse.open(path) as warehouse:
        write_history(warehouse, [*QUIET, *WORSE, *(value * 1.5 for value in QUIET)], model_id="bert")
        with warehouse.transaction() as connection:
            connection.execute("UPDATE benchmark_runs SET git_commit = repeat('a', 40), git_commit_time = '2025-06-01'")
    for _ in range(2):
        assert main(["alert", "raise", "--db-path", path]) == 0
    capsys.readouterr()
    assert len(rows(path, "SELECT alert_id FROM alerts")) == 2


def test_values_that_are_not_above_0_are_not_judged_and_said_so(empty_database, tmp_path, make_run, capsys):
    """A count of errors of the user's has no share of 0, which is no "no series has it"."""
    path, about = shutil.copy2(empty_database, tmp_path / "own.duckdb"), {"errs": {"unit": "", "better": "lower"}}
    run = make_run(batch_sizes=(1,), sequence_lengths=(32,))
    added = {"metrics": {**run.results[0].metrics, "errs": 0.0}, "extra": {CUSTOM_METRICS: about}}
    with Warehouse.open(path) as warehouse:
        warehouse.ingest(replace(run, results=(replace(run.results[0], **added),)))
    assert main(["regressions", "--metric", "errs", "--db-path", str(path)]) == 0
    assert "not judged: 1 result without errs above 0" in capsys.readouterr().err
    assert main(["regressions", "--metric", "errs", "--since", "2099-01-01", "--db-path", str(path)]) == 0
    assert "not judged" not in capsys.readouterr().err
    assert main(["history", "--metric", "errs", "--db-path", str(path)]) == 3
    assert "no series has errs above 0 in this database" in capsys.readouterr().err
