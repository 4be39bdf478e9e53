"""The data dictionary: everything is in it, with a meaning, and with a unit where there is one."""

from __future__ import annotations

import pytest

from benchmarking.core.errors import UsageError
from db.commands.sql import EXAMPLE_QUERIES
from db.query import answers
from db.query.questions import answering
from db.warehouse import Warehouse

pytestmark = pytest.mark.forked_children


@pytest.fixture
def asked_warehouse(asked_database):
    with Warehouse.open(asked_database, for_questions=True) as warehouse:
        yield warehouse


def test_every_table_view_and_column_has_a_meaning(asked_warehouse):
    for entry in answers.entries(asked_warehouse):
        assert entry.meaning, entry.name
        assert all(field.meaning for field in answers.fields(asked_warehouse, entry.name)), entry.name


@pytest.mark.parametrize(
    ("column", "unit"),
    [
        ("latency_median_ms", "ms"),
        ("load_time_s", "s"),
        ("memory_peak_rss_infer_mb", "MB"),
        ("memory_bytes", "B"),
        ("throughput_tokens_per_sec", "tokens/s"),
        ("achieved_flops_per_sec", "FLOP/s"),
        ("peak_copy_bytes_per_sec", "B/s"),
        ("energy_gpu_j_per_call", "J"),
        ("energy_idle_w", "W"),
        ("image_size", "px"),
        ("flops", "FLOP"),
        ("status", ""),
        ("doubts", ""),
        ("parameter_count", ""),
    ],
)
def test_units_are_recognized_by_names(column, unit):
    assert answers.unit_of(column) == unit


def test_times_and_texts_have_no_unit(asked_warehouse):
    for entry in answers.entries(asked_warehouse):
        for field in answers.fields(asked_warehouse, entry.name):
            if field.type in ("VARCHAR", "TIMESTAMP", "JSON", "BOOLEAN"):
                assert field.unit == "", f"{entry.name}.{field.name}"


def test_the_text_is_wrapped_and_not_truncated(asked_warehouse):
    text = answers.dictionary_text(asked_warehouse, "benchmark_results", width=60)
    assert max(map(len, text.splitlines())) <= 60
    assert "latency_ci_low_ms  DOUBLE  ms\n    Lower end of the 95 % confidence interval of\n" in text


def test_an_unknown_name_is_an_error_with_similar_names(asked_warehouse):
    with pytest.raises(UsageError, match="unknown table or view 'serie': did you mean series"):
        answers.dictionary_text(asked_warehouse, "serie", width=80)


@pytest.mark.parametrize("question", EXAMPLE_QUERIES)
def test_examples_run(asked_warehouse, question):
    with answering(asked_warehouse.path, EXAMPLE_QUERIES[question]) as answer:
        rows = list(answer.rows)
    assert rows
