"""Questions in SQL: what is run, what is refused, and what is said of it."""

from __future__ import annotations

import importlib.util
import io
import re
import time
from contextlib import nullcontext
from datetime import date, datetime
from datetime import time as clock

import duckdb
import pyarrow.parquet
import pytest

from benchmarking.core.errors import EXIT_TIME_LIMIT, StorageError, UsageError
from db.connection import confined
from db.query import questions
from db.query.questions import AnswerLimit, TimeLimitError, answering, answering_in_parquet, error_position
from db.warehouse import Warehouse

pytestmark = pytest.mark.forked_children


@pytest.fixture
def ask(asked_database):
    """A function that gives the answer's rows."""

    def rows(sql, params=None, timeout_s=None):
        with (
            answering(asked_database, sql, params, timeout_s=timeout_s) as answer,
        ):
            return [tuple(column.name for column in answer.columns), *answer.rows]

    return rows


def test_an_answer_has_names_and_rows(ask):
    sql = "SELECT model_id, count(*) AS n FROM benchmark_runs GROUP BY ALL ORDER BY ALL"
    assert ask(sql) == [("model_id", "n"), ("bert-base-uncased", 1), ("gpt2", 2), ("vit", 1)]


def test_types_of_columns_are_given(asked_database):
    sql = "SELECT settings, versions, doubts FROM all_results JOIN benchmark_runs USING (run_id, versions)"
    with (
        answering(asked_database, sql) as answer,
    ):
        assert [column.type for column in answer.columns] == ["JSON", "MAP(VARCHAR, VARCHAR)", "VARCHAR[]"]


def test_values_of_every_type_are_those_of_duckdb(ask):
    sql = """
        SELECT NULL, true, 1::HUGEINT * 10::HUGEINT ** 30, 0.1::DOUBLE, 'nan'::FLOAT, '-inf'::DOUBLE,
               1.10::DECIMAL(9, 2), 'ü"\n', '\\xAA\\x00'::BLOB, DATE '2026-11-22', TIME '01:02:03.5',
               TIMESTAMP '2026-11-22 01:02:03.000004',
               '01234567-89ab-cdef-0123-456789abcdef'::UUID, '101'::BIT,
               [1, NULL], [1.5, 2]::DOUBLE[2], {'a': TIME '01:02:03', 'decimal': [1.1]}, MAP {2: 'x', 1: 'y'},
               MAP {'pairs': {'tuple': NULL}}, 'a'::ENUM('a', 'b'), '{"uuid": 1}'::JSON
    """
    with duckdb.connect() as connection:
        expected = connection.execute(sql).fetchall()
    assert repr(ask(sql)[1:]) == repr(expected)


def test_intervals_and_infinite_times_are_the_texts_of_duckdb(ask):
    """Python has no months and no infinite times: an interval of a month would be one of 30 days."""
    sql = """
        SELECT age(TIMESTAMP '2026-03-01', TIMESTAMP '2025-01-31') AS a, 2 AS a, INTERVAL '-3 hours',
            'infinity'::TIMESTAMP, '-infinity'::TIMESTAMP, TIMESTAMP '20000-01-01',
            {'INTERVAL b': [INTERVAL 1 MONTH], 'n': 1}, MAP {'x': INTERVAL 1 YEAR}, [INTERVAL 3 DAY]::INTERVAL[1],
            union_value(k := INTERVAL 3 DAY), row(1, INTERVAL 1 DAY)
        ORDER BY $n::INTEGER;
    """
    assert ask(sql, {"n": "1"})[1] == (
        *("1 year 1 month 1 day", 2, "-03:00:00", "infinity", "-infinity", "20000-01-01 00:00:00"),
        *({"INTERVAL b": ["1 month"], "n": 1}, {"x": "1 year"}, ("3 days",), "3 days", {"v1": 1, "v2": "1 day"}),
    )
    assert ask("FROM (VALUES (3, INTERVAL 1 DAY), (1, INTERVAL 2 DAY)) t(i, span) ORDER BY i")[1:] == [
        (1, "2 days"),
        (3, "1 day"),
    ]
    assert ask("SELECT INTERVAL 1 DAY; -- a day;")[1:] == [("1 day",)]
    assert ask("PIVOT (VALUES (INTERVAL 1 DAY, 'b')) t(x, y) ON y USING first(x)") == [("b",), ("1 day",)]
    assert ask("SELECT 'x' AS y -- a text\nFROM range(1)")[1:] == [("x",)]
    assert ask("SELECT INTERVAL 1 DAY AS a, 2 AS a")[0] == ("a", "a")


def test_dates_and_times_that_python_lacks_are_texts(ask):
    sql = """
        SELECT 'infinity'::DATE, '-infinity'::DATE, '9999-12-31'::DATE, '0044-03-15 (BC)'::DATE,
            ['infinity'::DATE, '2026-01-01'::DATE], '2026-01-01 10:00:00.123456789'::TIMESTAMP_NS,
            '2026-01-01 10:00:00.5'::TIMESTAMP_NS, 'infinity'::TIMESTAMP_NS, NULL::DATE,
            '10:00:00.123456789'::TIME_NS, '10:00:00'::TIME_NS, '24:00:00'::TIME_NS
    """
    assert ask(sql)[1] == (
        *("infinity", "-infinity", date(9999, 12, 31), "0044-03-15 (BC)", ["infinity", "2026-01-01"]),
        *("2026-01-01T10:00:00.123456789", datetime(2026, 1, 1, 10, 0, 0, 500_000), "infinity", None),
        *("10:00:00.123456789", clock(10), "24:00:00"),
    )


def test_an_error_of_a_value_does_not_name_the_file(ask, asked_database):
    for sql in ("SELECT ('x' || run_id)::INTEGER FROM benchmark_runs", "SELECT DATE 'abc'"):
        with pytest.raises(StorageError) as raised:
            ask(sql)
        assert str(asked_database) not in str(raised.value)


def test_a_statement_with_parameters_runs_once(asked_database, monkeypatch):
    """A relation of DuckDB that has parameters is run when it is made."""
    monkeypatch.setattr("duckdb.DuckDBPyConnection.sql", None)
    question = {"sql": "SELECT $x AS x", "params": {"x": "1"}, "form": "rows", "most_rows": None}
    with Warehouse.open(asked_database, for_questions=True) as warehouse:
        assert list(questions._run_query(warehouse, question)) == [("columns", [("x", "VARCHAR")]), ("rows", [["1"]])]


def test_an_answer_with_intervals_is_read_in_parts(asked_database):
    """As any other: a long one would take the memory of all of it."""
    sql = "SELECT i, INTERVAL 1 DAY AS span FROM range(10_050) t(i)"
    question = {"sql": sql, "params": {}, "form": "rows", "most_rows": None}
    with Warehouse.open(asked_database, for_questions=True) as warehouse:
        (_, columns), *messages = questions._run_query(warehouse, question)
    assert columns == [("i", "BIGINT"), ("span", "INTERVAL")]
    assert [len(rows) for _, rows in messages] == [10_000, 50]


def test_an_error_in_a_row_of_intervals_has_the_position_in_the_statement(ask):
    with pytest.raises(StorageError, match=r"^line 2, column 17: .*'x0'"):
        ask("SELECT INTERVAL 1 DAY,\n 'ü', ('x' || i)::INT FROM range(3) t(i)")


def test_parameters_are_bound_and_never_pasted(ask):
    assert ask("SELECT $x AS x", {"x": "'; DROP TABLE series; --"}) == [("x",), ("'; DROP TABLE series; --",)]
    assert ask("SELECT count(*) AS n FROM benchmark_results WHERE batch_size = $b", {"b": "64"})[1] == (1,)
    with pytest.raises(UsageError, match=r"^b=one: Could not convert string 'one' to INT32"):
        ask("SELECT batch_size FROM benchmark_results WHERE batch_size = $b", {"b": "one"})


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("SELECT * FORM x", 'line 1, column 15: syntax error at or near "x"'),
        ("SELECT 'é',\n  nothing FROM series", "line 2, column 3: there is no column nothing: benchhouse q"),
        ("SELECT * FROM serie", "line 1, column 15: there is no table serie: did you mean series?"),
        ("SELECT * FROM results", "line 1, column 15: there is no table results: did you mean all_results?"),
        ("SELECT * FROM benchmark_run", "there is no table benchmark_run: did you mean benchmark_runs?"),
        ("SELECT * FROM raw_benchmark_dat", "did you mean raw_benchmark_data?"),
        ("SELECT * FROM hardware_comparision", "did you mean hardware_comparison?"),
        ("SELECT * FROM histroy", "there is no table histroy: did you mean history?"),
        ("SELECT * FROM Runs", "there is no table Runs: did you mean benchmark_runs?"),
        ("SELECT serve_slots FROM all_results", "column serve_slots: it is runtime_mode->>'serve_slots', as of all_re"),
        ("SELECT r.request_rate FROM all_results r", "there is no column request_rate: it is axes->>'request_rate'"),
        (
            "SELECT time_to_first_token_p95_ms FROM latest_results",
            "did you mean other_metrics['time_to_first_token_p95_ms']? benchhouse query --describe latest_results",
        ),
        ("SELECT goodput_per_sec FROM latest_results", "mean other_metrics['goodput_requests_per_sec'] or other_m"),
        ("SELECT latency_p90 FROM latest_results", "did you mean latency_p90_ms"),
        ("SELECT slo FROM all_results", "there is no column slo: it is runtime_mode->>'slo'"),
        ("SELECT request_rate FROM all_results", "axes->>'request_rate', as of all_results, or a column of load_curve"),
        ("SELECT count(*) FROM load_results", "there is no table load_results: did you mean load_curve?"),
        (
            "SELECT axes->>'request_rate' FROM load_curve",
            "load_curve has no column axes: there it is the column request_",
        ),
        (
            "SELECT ttft_p95_ms FROM load_curve",
            "there is no column ttft_p95_ms: did you mean time_to_first_token_p95_ms? benchhouse query",
        ),
        (
            "SELECT tpot_p95_ms FROM all_results",
            "no column tpot_p95_ms: did you mean other_metrics['time_per_output_token_p95_ms']?",
        ),
        ("SELECT ttft_p90_ms FROM all_results", "no column ttft_p90_ms: did you mean time_to_first_token_p90_ms?"),
        (
            "SELECT model_id FROM benchmark_results",
            "no column model_id in what this selects from: all_results, latest_results, accepted_results and ",
        ),
        ("SELECT r.model_id FROM benchmark_results r", "no column model_id in what this selects from: all_results"),
        (
            "SELECT state FROM all_results",
            "there is no column state: did you mean status (of the measure",
        ),
        (
            "SELECT rate FROM load_curve",
            "there is no column rate: did you mean request_rate? benchhouse query --describe",
        ),
        ("SELECT l.engine FROM load_curve l", "there is no column engine: did you mean runtime or runtime_mode?"),
        ("SELECT latancy FROM all_results", "did you mean latency_mean_ms or latency_median_ms or latency_std_ms?"),
        ("SELECT name FROM hardware_info", "did you mean device_name?"),
        ("SELECT x.foo FROM (SELECT 1 AS y) x", "there is no column foo: benchhouse query --describe TABLE lists"),
        (
            "SELECT percentile_cont(latency_median_ms, 0.5) FROM all_results",
            "a percentile is quantile_cont(COLUMN, 0.95)",
        ),
        ("results", "results is no statement: write one such as SELECT * FROM all_results (--describe"),
        ("SELECT $x", "Values were not provided for the following"),
        ("", "expected a statement"),
        ("-- nothing", "expected a statement"),
        ("SELECT 1; SELECT 2", "expected one statement: got 2"),
        ("CREATE TEMP TABLE x (i INTEGER)", "CREATE is not read-only"),
        ("WITH a AS (SELECT 1) DELETE FROM series", "DELETE is not read-only"),
        ("COPY series TO 'x.csv'", "COPY is not read-only"),
        ("SELECT * FROM read_csv('/etc/hostname')", "Cannot access file"),
        ("SET threads = 1", "SET is not read-only"),
        ("PRAGMA threads = 1", "is not read-only|configuration has been locked"),
    ],
)
def test_invalid_statements_are_refused_with_a_message(ask, sql, words):
    with pytest.raises(UsageError) as refused:
        ask(sql)
    assert re.search(words if "|" in words else re.escape(words), str(refused.value))


def test_an_error_in_the_data_is_not_a_usage_error(ask):
    with pytest.raises(StorageError, match=r"line 1, column 1[0-9]: Could not convert string 'x' to INT32"):
        ask("SELECT 'x'::INTEGER")


def test_timestamps_with_a_zone_are_answered_or_suggest_a_cast(ask):
    is_answered = importlib.util.find_spec("pytz") or re.match(r"[3-9]|2\.0\.[1-9]|2\.[1-9]", duckdb.__version__)
    refused = pytest.raises(UsageError, match=r"cast it, for example now\(\)::TIMESTAMP")
    with nullcontext() if is_answered else refused:
        assert len(ask("SELECT now() AS t")) == 2
    assert len(ask("SELECT now()::TIMESTAMP AS t")) == 2


def test_a_pivot_is_one_statement(ask):
    names, row = ask("PIVOT (SELECT runtime FROM benchmark_runs) ON runtime USING count(*)")
    assert (names, row) == (("eager", "onnxruntime"), (3, 1))


def test_the_time_limit_stops_a_query_and_reading_its_answer(ask):
    started = time.monotonic()
    for sql in ("SELECT count(*) FROM range(1_000_000_000_000)", "SELECT * FROM range(1_000_000_000_000)"):
        with pytest.raises(TimeLimitError, match=r"no answer within 0\.2 s") as over:
            ask(sql, timeout_s=0.2)
        assert over.value.exit_code == EXIT_TIME_LIMIT
    assert time.monotonic() - started < 60


def test_an_answer_is_read_as_it_is_consumed(asked_database):
    with (
        answering(asked_database, "SELECT * FROM range(1_000_000_000_000)") as answer,
    ):
        assert [next(answer.rows) for _ in range(3)] == [(0,), (1,), (2,)]


def test_positions_are_counted_in_characters_from_1():
    assert error_position("SELECT 'é', x", len("SELECT 'é', ".encode())) == "line 1, column 13"
    assert error_position("a\nbc", 3) == "line 2, column 2"
    assert error_position("", 0) == "line 1, column 1"


def test_a_warehouse_for_questions_reads_only(asked_database):
    with Warehouse.open(asked_database, for_questions=True) as warehouse:
        assert warehouse.read_only
        with pytest.raises(StorageError, match="read-only"):
            warehouse.query("DELETE FROM series")


ENDLESS = "SELECT levenshtein(repeat('a', 200000), repeat('b', 200000))"
HUGE = "SELECT len(range(3000000000))"


def test_a_function_that_cannot_be_interrupted_ends_at_the_time_limit(ask):
    started = time.monotonic()
    with pytest.raises(TimeLimitError, match="no answer within 1 s"):
        ask(ENDLESS, timeout_s=1)
    assert time.monotonic() - started < 30


@pytest.mark.skipif(duckdb.__version__ >= "2", reason="DuckDB 2 takes such words as names")
def test_a_word_of_sql_as_a_name_suggests_as(ask):
    with pytest.raises(UsageError, match=r'near "share": as a name, write AS share \(it is also a word of SQL\)'):
        ask("SELECT 1 share")


def test_a_fault_of_the_process_that_answers_is_not_called_a_lack_of_memory(asked_database, capfd):
    with (
        pytest.raises(StorageError, match="the process that answers the query failed"),
        answering(asked_database, "SELECT 1", lock_timeout_s="no number"),
    ):
        pass
    assert "TypeError" in capfd.readouterr().err


def test_a_function_that_takes_all_memory_ends_at_the_memory_limit(ask):
    import resource

    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    with pytest.raises(StorageError, match=r"memory|Out of Memory"):
        ask(HUGE, timeout_s=60)
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss < max(before, 5 * 1024**2)  # in KiB


def test_an_answer_is_read_only_up_to_the_limit(asked_database):
    limit = AnswerLimit(rows=3, bytes=1000)
    with answering(asked_database, "SELECT repeat('x', 100) FROM range(20_000)", limit=limit) as answer:
        assert list(answer.rows) == 3 * [(100 * "x",)]
    with (
        answering(asked_database, "SELECT repeat('x', 400) FROM range(20_000)", limit=limit) as answer,
        pytest.raises(StorageError, match="the answer has more than 0 MB: select less"),
    ):
        list(answer.rows)


def test_no_process_outlives_its_query(ask):
    import psutil

    with pytest.raises(TimeLimitError):
        ask(ENDLESS, timeout_s=0.5)
    commands = [child.cmdline() for child in psutil.Process().children(recursive=True)]
    assert not [command for command in commands if "db.query.questions" in command]


@pytest.fixture
def parquet_of(asked_database):
    """A function that gives the file of an answer, as it is read back."""

    def read(sql, timeout_s=None):
        with answering_in_parquet(asked_database, sql, timeout_s=timeout_s) as parts:
            return pyarrow.parquet.ParquetFile(io.BytesIO(b"".join(parts)))

    return read


def test_a_parquet_file_has_every_row_with_its_type_and_repeated_names_apart(parquet_of):
    file = parquet_of("SELECT range AS n, range / 2 AS n, DATE '2026-01-01' AS day, ['a'] AS words FROM range(300000)")
    table = file.read()
    assert [str(kind) for kind in table.schema.types] == ["int64", "double", "date32[day]", "list<element: string>"]
    assert len(set(table.schema.names)) == 4
    assert table.column(0).to_pylist() == list(range(300_000))
    assert file.num_row_groups == 3


@pytest.mark.parametrize(
    ("sql", "error", "expected"),
    [
        ("DELETE FROM benchmark_runs", UsageError, "DELETE is not read-only"),
        ("SELECT * FROM read_text('/etc/passwd')", UsageError, "disabled by configuration"),
        ("COPY (SELECT 1) TO 'a.parquet'", UsageError, "COPY is not read-only"),
        ("SELECT 1 AS one, INTERVAL 1 day AS span", UsageError, "no type for 'span'.*cast it.*\"span\"::VARCHAR"),
        ("SELECT CAST(model_id AS INTEGER) FROM benchmark_runs", StorageError, "Could not convert string"),
    ],
)
def test_a_parquet_file_is_made_within_the_limits_of_every_answer(parquet_of, sql, error, expected):
    with pytest.raises(error, match=expected):
        parquet_of(sql)


def test_a_parquet_file_ends_at_the_time_limit(parquet_of):
    with pytest.raises(TimeLimitError, match=r"no answer within 0\.5 s"):
        parquet_of("SELECT sum(a.range * b.range) FROM range(10000000) a, range(10000000) b", timeout_s=0.5)


def test_wide_rows_are_sent_in_small_messages():
    with confined() as connection:
        wide = connection.execute("SELECT repeat('x', 50_000) FROM range(450)")
        assert list(map(len, questions._row_groups(wide.fetchmany))) == [100, 100, 100, 100, 50]
        narrow = connection.execute("SELECT range FROM range(10_050)")
        assert list(map(len, questions._row_groups(narrow.fetchmany))) == [10_000, 50]
