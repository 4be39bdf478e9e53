"""`benchhouse alert`, through its own main."""

from __future__ import annotations

import json
import shutil

import pytest

from db.analysis.gate.gate import DETECTOR, PARAMETERS
from db.commands import alert, regressions
from db.values import unique_prefixes
from db.warehouse import Warehouse

INSERT = f"""
INSERT INTO alerts BY NAME SELECT
    'a1fe5c' || batch_size AS alert_id, series_id, 'latency_median_ms' AS metric, repeat('1', 40) AS first_commit,
    repeat('2', 40) AS last_commit, session_id AS group_id, 'new' AS triage, 0.1 AS relative_change,
    '{DETECTOR}' AS detector, '1' AS detector_version, '{{"n": 12}}' AS parameters,
    TIMESTAMP '2026-03-02 10:00:00' AS created_at, TIMESTAMP '2026-03-02 10:00:00' AS updated_at, result_id
FROM all_results
"""
CACHE = {}


@pytest.fixture
def raised(tmp_path, tmp_path_factory, empty_database, make_run):
    """A warehouse with two alerts: a1fe5c1 at batch 1 and a1fe5c2 at batch 2."""
    if "path" not in CACHE:
        path = shutil.copy2(empty_database, tmp_path_factory.mktemp("alert") / "raised.duckdb")
        with Warehouse.open(path) as warehouse:
            warehouse.ingest(make_run(sequence_lengths=(32,), iterations=3))
            with warehouse.transaction() as connection:
                connection.execute(INSERT)
        CACHE["path"] = path
    return str(shutil.copy2(CACHE["path"], tmp_path / "raised.duckdb"))


@pytest.fixture
def listed(raised, capsys):
    """A function that lists alerts as JSON."""

    def run(*arguments):
        assert alert.main(["list", *arguments, "--json", "--db-path", raised]) == 0
        return json.loads(capsys.readouterr().out)

    return run


def test_alerts_are_listed_with_their_subjects(listed, raised, capsys):
    first = listed()[1]

    assert (first["alert_id"], first["triage"], first["model_id"]) == ("a1fe5c2", "new", "bert-base-uncased")
    assert first["parameters"] == {"n": 12}
    assert first["created_at"] == "2026-03-02T10:00:00"
    assert alert.main(["list", "--db-path", raised]) == 0
    shared, *lines = capsys.readouterr().out.splitlines()
    row = next(line for line in lines if line.startswith("a1fe5c1"))
    assert shared.startswith("model bert-base-uncased, device cpu, hardware Test CPU, runtime eager, precision float32")
    assert row.split()[:5] == ["a1fe5c1", "b1", "s32", "+10.0%", "1111111..2222222"]
    assert row.split()[5:9] == ["no", "2026-03-02", "10:00", "new"]


def test_a_selection_and_a_triage_choose(listed):
    assert [row["alert_id"] for row in listed("batch=2")] == ["a1fe5c2"]
    assert listed("model=nobody") == []
    assert listed("--triage", "noise,method") == []
    assert len(listed("--triage", "new")) == 2


def test_triage_is_set_by_prefix_and_keeps_its_note(listed, raised, capsys):
    assert alert.main(["set", "a1fe5c1", "noise", "--note", "a | backup", "--db-path", raised]) == 0
    out, err = capsys.readouterr()
    assert out == "a1fe5c1: noise\n"
    assert "expect a wider range while they are among the last 60 runs" in err
    assert PARAMETERS.max_points == 60
    assert alert.main(["set", "a1fe5c1", "hardware", "--db-path", raised]) == 0
    assert "the level of these results stays" in capsys.readouterr().err
    assert alert.main(["set", "a1fe5c2", "regression", "--db-path", raised]) == 0
    assert "which fail at their level" in capsys.readouterr().err

    (row,) = listed("--triage", "hardware")
    assert row["note"] == "a | backup"
    assert row["updated_at"] > row["created_at"]

    secret = "API_TOKEN=abcdef0123456789"
    assert alert.main(["set", "a1fe5c1", "noise", "--note", f"see {secret}", "--json", "--db-path", raised]) == 0
    shown = json.loads(capsys.readouterr().out)["note"]
    (row,) = listed("--triage", "noise")
    assert shown == row["note"]
    assert "abcdef0123456789" not in shown
    for text in (" ", "a" * 2001):
        assert alert.main(["set", "a1fe5c1", "noise", "--note", text, "--db-path", raised]) == 2
        assert "expected a note of 1 to 2000 characters" in capsys.readouterr().err


def test_no_regressions_is_not_all_there_is_to_say_while_alerts_are_open(raised, capsys):
    assert regressions.main(["--no-update", "--db-path", raised]) == 0
    assert "2 open alerts of benchhouse check, which later runs have to confirm" in capsys.readouterr().out
    assert alert.main(["set", "a1fe5c1", "noise", "--db-path", raised]) == 0
    capsys.readouterr()
    assert regressions.main(["--no-update", "--db-path", raised]) == 0
    assert "1 open alert of benchhouse check" in capsys.readouterr().out
    assert regressions.main(["--no-update", "--since", "2999-01-01", "--db-path", raised]) == 0
    assert "open alert" not in capsys.readouterr().out, "results before the date are not asked for"


def test_an_alert_of_the_history_is_none_of_the_check(raised, capsys):
    with Warehouse.open(raised) as warehouse, warehouse.transaction() as connection:
        connection.execute("UPDATE alerts SET detector = 'split-merge-t'")
    assert alert.main(["set", "a1fe5c1", "regression", "--db-path", raised]) == 0
    assert capsys.readouterr().err == ""
    assert regressions.main(["--no-update", "--db-path", raised]) == 0
    assert "benchhouse check" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("set", "a1fe", "noise"), "2 alerts have an id that begins with 'a1fe': give one of a1fe5c1, a1fe5c2"),
        (("set", "a1fe5c1", "ffff", "noise"), "no alert has an id that begins with 'ffff'"),
        (("set", "a1", "noise"), "expected an alert id or at least its first 4 characters"),
        (("set", "noise", "a1fe5c1", "a1fe5c2"), "the triage comes last: benchhouse alert set a1fe5c1 a1fe5c2 noise"),
        (("set", "a1fe5c1", "wontfix"), "level: benchhouse alert set a1fe5c1 intended --note WHY"),
        (("set", "accepted"), "level: benchhouse alert set ID intended --note WHY"),
        (("noise", "a1fe5c1", "a1fe5c2"), "a triage is set by benchhouse alert set a1fe5c1 a1fe5c2 noise --note WHY"),
        (("accepted", "--note", "wanted"), "a triage is set by benchhouse alert set ID intended --note WHY"),
        (("set", "a1fe5c1", "nosie"), "unknown triage 'nosie': did you mean noise"),
        (("list", "--triage", "nosie"), "unknown triage 'nosie': did you mean noise"),
        (("list", "nonsense"), "'nonsense' is not a selection"),
        ((), "list|raise|set is missing, as in benchhouse alert raise"),
        (("raise", "--since", "soon"), "expected a date or time in ISO 8601"),
        (("raise", "--metric", "latency"), "unknown metric 'latency'"),
    ],
)
def test_invalid_requests_are_one_line_and_change_nothing(raised, listed, capsys, arguments, message):
    code = alert.main([*arguments, *(["--db-path", raised] if arguments else [])])

    error = capsys.readouterr().err
    assert code == 2
    assert message in error
    assert error.count("\n") == 1
    assert len(listed("--triage", "new")) == 2


def test_a_confirmed_regression_of_the_history_raises_one_alert(tmp_path, capsys, write_history):
    path = str(tmp_path / "a.duckdb")
    with Warehouse.open(path) as warehouse:
        write_history(warehouse, [10.0] * 12 + [13.0] * 6)
        write_history(warehouse, [10.0] * 12 + [7.0] * 6, runtime="onnxruntime")  # for the better: nothing to look at
        write_history(warehouse, [10.0] * 16 + [13.0] * 2, runtime="compiled")  # only suspected as yet

    def run(*arguments):
        assert alert.main([*arguments, "--db-path", path]) == 0
        return capsys.readouterr().out

    assert run("raise", "--since", "2026-02-01") == "0 alerts stored, 0 already known\n"
    assert run("raise") == "1 alert stored, 0 already known\n"
    (row,) = json.loads(run("list", "--json"))
    assert (row["runtime"], row["triage"], round(row["relative_change"], 2)) == ("eager", "new", 0.3)
    assert row["change_point_id"] is not None
    assert (row["parameters"]["value_before"], row["parameters"]["value_after"]) == (10.0, 13.0)
    run("set", row["alert_id"], "noise")
    assert json.loads(run("raise", "--json")) == {"new": [], "known": [row["alert_id"]]}


def test_an_alert_for_the_same_commits_is_linked_with_the_change(tmp_path, capsys, write_history):
    path = str(tmp_path / "a.duckdb")
    with Warehouse.open(path) as warehouse:
        later = write_history(warehouse, [10.0] * 12 + [13.0] * 6)[14]
        last_good = "0011".ljust(40, "f")
        with warehouse.transaction() as connection:
            sql = INSERT.replace("repeat('1', 40)", f"'{last_good}'")
            connection.execute(f"{sql} WHERE result_id = '{later}'")
    assert alert.main(["raise", "--db-path", path]) == 0
    assert capsys.readouterr().out == "0 alerts stored, 1 already known\n"
    assert alert.main(["list", "--json", "--db-path", path]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["alert_id"], row["result_id"], row["change_point_id"] is None) == ("a1fe5c1", later, False)


def test_the_table_shows_prefixes_of_ids_that_select_one_alert():
    ids = ["0199a3f2-aaaa-7001", "0199a3f2-aaaa-7002", "0299a3f2-bbbb-7001"]
    assert unique_prefixes(ids) == {ids[0]: ids[0], ids[1]: ids[1], ids[2]: "0299a3f2"}
    assert unique_prefixes([]) == {}
