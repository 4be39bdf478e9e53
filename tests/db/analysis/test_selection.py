"""Selections from words on a command line, in a warehouse with four runs of two commands."""

import dataclasses
from datetime import UTC, datetime, timedelta

import pytest

from benchmarking.core.errors import UsageError
from db.analysis.selection import EVERYTHING, Selection, custom_metrics, judged_metric
from db.query.questions import TimeLimitError
from db.warehouse import Warehouse

pytestmark = pytest.mark.forked_children


@pytest.fixture(scope="module")
def runs(make_run):
    one = {"batch_sizes": (1, 4), "sequence_lengths": (32,)}
    first, second, third, fourth = (
        make_run(**one, started_at="2026-01-10T08:00:00+00:00"),
        make_run(**one, model_id="gpt2", runtime="compiled", started_at="2026-01-10T23:30:00+00:00"),
        make_run(**one, runtime="onnxruntime", started_at="2026-02-01T00:00:00+00:00"),
        make_run(**one, started_at="2026-02-01T00:00:01+00:00"),
    )
    fourth = dataclasses.replace(fourth, session_id=third.session_id)
    origin = dataclasses.replace(first.provenance, git_commit=None, git_commit_time=None, tags={})
    tagged = dataclasses.replace(origin, git_commit="abcdef0123" + "0" * 30, tags={"team's": "a|b", "side": "a"})
    rest = (dataclasses.replace(run, provenance=origin) for run in (second, third, fourth))
    return dataclasses.replace(first, provenance=tagged), *rest


@pytest.fixture(scope="module")
def chosen(runs, tmp_path_factory):
    """A function that gives the numbers of the runs that words select."""
    path = tmp_path_factory.mktemp("selection") / "a.duckdb"
    with Warehouse.open(path) as warehouse:
        warehouse.ingest_all(runs)
    with Warehouse.open(path, read_only=True) as warehouse:
        numbers = {run.run_id: number for number, run in enumerate(runs)}

        def select(selection):
            found = selection.resolved(path)
            sql = f"SELECT DISTINCT run_id FROM all_results WHERE {found.condition}"
            return sorted(numbers[row["run_id"]] for row in warehouse.query(sql, list(found.values)).dicts())

        yield select


@pytest.mark.parametrize(
    ("words", "numbers"),
    [
        ("", [0, 1, 2, 3]),
        ("model=gpt2", [1]),
        ("runtime=compiled|onnxruntime", [1, 2]),
        (" runtime = eager , batch=4 ", [0, 3]),
        ("batch=2", []),
        ("model_id=gpt2,batch_size=4", [1]),  # a field by the name of its column
        ("tag.side=a", [0]),
        ("tag.team's=a", []),  # the | parts values
        ("since=2026-01-11", [2, 3]),
        ("until=2026-01-10", [0, 1]),  # the whole day
        ("until=2026-01-10T23:30:00", [0]),
        ("until=9999-12-31", [0, 1, 2, 3]),
        ("since=2026-02-01T02:00:01+02:00", [3]),
        ("abcdef0", [0]),
        ("commit=abc", [0]),
        ("latest", [2, 3]),
        ("sql:batch_size = 4 AND runtime <> 'eager'", [1, 2]),
        ("model=gpt2,sql:batch_size IN (1, 4)", [1]),
    ],
)
def test_words_select_results(chosen, words, numbers):
    assert chosen(Selection.parse(words)) == numbers


def test_an_age_is_a_time_that_long_ago():
    for words, hours in (("since=12h", 12), ("since=7d", 168), ("until=2w", 336)):
        (time,) = Selection.parse(words).values
        assert abs(datetime.now(UTC).replace(tzinfo=None) - timedelta(hours=hours) - time) < timedelta(minutes=1)


def test_a_run_or_session_is_selected_by_an_id_prefix(chosen, runs):
    assert chosen(Selection.parse(runs[1].run_id)) == [1]
    assert chosen(Selection.parse(runs[1].run_id[:13])) == [1]
    assert chosen(Selection.parse(f"session={runs[2].session_id[:8]}")) == [2, 3]
    assert chosen(Selection.parse(f"run={runs[0].run_id}|{runs[3].run_id[:8]}")) == [0, 3]


def test_a_selection_has_its_columns():
    assert Selection.parse("runtime=eager,tag.side=a,batch=1").named == {"runtime", "tag.side", "batch_size"}
    assert (EVERYTHING.condition, EVERYTHING.named) == ("TRUE", frozenset())


def test_values_are_bound_and_never_part_of_the_statement(chosen):
    selection = Selection.parse("model=x'; DROP TABLE series; --")
    assert "DROP" not in selection.condition
    assert selection.values == ("x'; DROP TABLE series; --",)
    assert chosen(selection) == []


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("modle=gpt2", "unknown selection 'modle': did you mean model"),
        ("model=", "expected a value after ="),
        ("model=a|", "expected a value after ="),
        ("batch=two", "expected a whole number, found 'two'"),
        ("since=yesterday", "expected a date or time in ISO 8601"),
        ("nonsense", "'nonsense' is not a selection"),
        ("latency_median_ms", "did you mean --metric latency_median_ms, of history, show, compare, check"),
        ("runtime=eager,latency_p99_ms", "did you mean --metric latency_p99_ms, of"),
        ("since=1y", "or an age, such as since=7d"),
        ("7d", "did you mean since=7d"),
        ("last", "did you mean latest"),
        ("HEAD~1", "did you mean commit=HASH"),
        ("last~2", "did you mean run=ID, or benchhouse check"),
        ("last-week", "did you mean since=7d"),
        ("all", "leave it out to take all results"),
        ("tag.side", "did you mean tag.side=VALUE"),
        ("tag=side", "selected by its name: tag.NAME=side"),
        ("tags.side=a", "selected by its name: tag.side=a"),
        ("batch>=4", "did you mean sql:batch_size >= 4"),
        ("batch_size>=4", "did you mean sql:batch_size >= 4"),
        ("since>=2026-01-01", "did you mean since=2026-01-01"),
        ("model!=gpt2", "did you mean sql:model_id != 'gpt2'"),
        ("model~gpt", "did you mean sql:model_id LIKE '%gpt%'"),
        ("abc123", "is not a selection"),  # too short for a commit
        ("tag.=x", "unknown selection 'tag.'"),
        ("sql: ", "sql: is empty"),
    ],
)
def test_invalid_words_are_one_clear_line(words, problem):
    with pytest.raises(UsageError, match=problem.replace("|", r"\|")):
        Selection.parse(words)


@pytest.mark.parametrize(
    "sql",
    [
        "TRUE); COPY (SELECT 1) TO '{target}'; SELECT (TRUE",
        "EXISTS (FROM read_text('{secret}'))",
        "TRUE); DELETE FROM series; --",
        "TRUE) UNION ALL (SELECT content FROM read_text('{secret}')",
    ],
)
def test_sql_in_a_selection_reads_only_the_warehouse(chosen, tmp_path, sql):
    target, secret = tmp_path / "written.csv", tmp_path / "secret.txt"
    secret.write_text("secret")
    with pytest.raises(UsageError, match=r"expected one statement|Cannot access file|syntax error") as refused:
        chosen(Selection.parse("sql:" + sql.format(target=target, secret=secret)))
    assert str(refused.value).startswith("sql:TRUE" if sql.startswith("TRUE") else "sql:EXISTS")
    assert not target.exists()


def test_sql_in_a_selection_reaches_no_statement_before_it_is_resolved():
    selection = Selection.parse("model=a,sql:batch_size = 1")
    with pytest.raises(UsageError, match="sql:batch_size = 1 is not resolved"):
        assert selection.condition


def test_sql_in_a_selection_ends_at_its_time_limit(chosen, monkeypatch):
    monkeypatch.setattr("db.analysis.selection.TIME_LIMIT_S", 0.5)
    with pytest.raises(TimeLimitError, match=r"not answered within 0\.5 s: narrow the condition"):
        chosen(Selection.parse("sql:levenshtein(repeat('a', 200000), repeat('b', 200000)) > batch_size"))


@pytest.mark.parametrize(
    ("stated", "better"),
    [
        ([{"better": "higher"}], "higher"),  # the ending alone says lower
        ([{"unit": "ms", "better": "higher"}], "higher"),
        ([{"unit": "ms", "better": "Lower"}], None),
        ([{"unit": "", "better": None}], None),
        ([{}], "lower"),
        ([{"better": "higher"}, {"better": "lower"}], None),
        ([], "lower"),
    ],
)
def test_the_direction_of_an_own_metric_is_what_results_state(warehouse, make_run, stated, better):
    for definition in stated or [None]:
        (result,) = make_run(batch_sizes=(1,), sequence_lengths=(32,)).results
        extra = {} if definition is None else {"custom_metrics": {"score_ms": definition}}
        result = dataclasses.replace(result, metrics={**result.metrics, "score_ms": 1.0}, extra=extra)
        warehouse.ingest(dataclasses.replace(make_run(), results=(result,)))
    if better is None:
        with pytest.raises(UsageError, match="metric score_ms is stored "):
            judged_metric(warehouse, "score_ms")
    else:
        assert judged_metric(warehouse, "score_ms").better == better
    if stated and stated != [{}]:
        assert custom_metrics(warehouse)["score_ms"].better == better
