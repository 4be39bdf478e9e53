"""OpenMetrics text: base units, one value for each series and time, valid for a parser."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from benchmarking.core.errors import UsageError
from db.exporters.files import _escaped, family, in_base_units

SAMPLE = re.compile(r'([a-z_0-9]+)\{((?:[a-z_]+="(?:[^"\\]|\\.)*",?)+)\} (\S+) (\S+)')


def samples(text):
    return [found.groups() for line in text.splitlines() if (found := SAMPLE.fullmatch(line))]


@pytest.mark.parametrize(
    ("column", "name", "unit", "stored", "value"),
    [
        ("latency_median_ms", "benchhouse_latency_median_seconds", "seconds", 1.31591125, 0.00131591125),
        ("load_time_s", "benchhouse_load_time_seconds", "seconds", 2.5, 2.5),
        ("memory_weights_mb", "benchhouse_memory_weights_bytes", "bytes", 0.5, 500_000.0),
        ("energy_gpu_j_per_call", "benchhouse_energy_gpu_per_call_joules", "joules", 3.0, 3.0),
        ("energy_total_j", "benchhouse_energy_total_joules", "joules", 3.0, 3.0),
        ("system_energy_j_per_query", "benchhouse_system_energy_per_query_joules", "joules", 3.0, 3.0),
        ("output_tokens_per_j", "benchhouse_output_tokens_per_j", "", 7.0, 7.0),
        ("http_req_data_received_avg_kb", "benchhouse_http_req_data_received_avg_bytes", "bytes", 0.5, 500.0),
        ("energy_idle_w", "benchhouse_energy_idle_watts", "watts", 40.0, 40.0),
        ("throughput_tokens_per_sec", "benchhouse_throughput_tokens_per_second", "", 7.0, 7.0),
        ("achieved_flops_per_sec", "benchhouse_achieved_flops_per_second", "flops_per_second", 1e9, 1e9),
        ("output_error", "benchhouse_output_error", "", 1e-7, 1e-7),
        ("counter_tok_s", "benchhouse_counter_tok_s", "", 7.0, 7.0),
        ("requests_per_ms", "benchhouse_requests_per_ms", "", 7.0, 7.0),
        ("odd-name é", "benchhouse_odd_name__", "", 1.0, 1.0),
    ],
)
def test_names_end_in_base_units_and_values_are_in_them(column, name, unit, stored, value):
    made = family(column)
    assert (made.name, made.unit, made.value(stored)) == (name, unit, value)


def test_the_help_names_the_unit_of_the_value():
    assert in_base_units("Latency in ms: peak in MB (10^6 bytes).") == "Latency in seconds: peak in bytes."
    assert (
        in_base_units("Time spent in s, energy in J, power in W.")
        == "Time spent in seconds, energy in joules, power in watts."
    )


def test_labels_are_escaped():
    assert _escaped('a"b\\c\nd') == 'a\\"b\\\\c\\nd'


def test_every_measured_result_has_a_sample_with_the_time_of_its_run(export, capsys):
    (note,) = export("openmetrics")
    assert note == "left out: 1 result: not measured (failed, skipped or timed out)"
    text = capsys.readouterr().out
    assert text.endswith("# EOF\n")
    found = [one for one in samples(text) if one[0] == "benchhouse_latency_median_seconds"]
    assert len(found) == 10
    (eager,) = (one for one in found if 'model="gpt2"' in one[1] and 'runtime="eager"' in one[1])
    assert 'batch_size="2",sequence_length="6",new_tokens="4",concurrency="1",validity="valid"' in eager[1]
    assert 'runtime_mode="{\\"attention\\":\\"sdpa\\"}"' in eager[1]
    assert (float(eager[2]), float(eager[3])) == (0.015, 1770076800.0)


def test_a_parser_of_openmetrics_reads_it(export, capsys):
    parser = pytest.importorskip(
        "prometheus_client.openmetrics.parser", reason="needs prometheus_client, which nothing else here does"
    )
    export("openmetrics")
    families = {one.name: one for one in parser.text_string_to_metric_families(capsys.readouterr().out)}
    assert families["benchhouse_latency_median_seconds"].unit == "seconds"
    assert len(families["benchhouse_latency_median_seconds"].samples) == 10


def test_each_family_is_contiguous_with_its_type_first(export, capsys):
    export("openmetrics")
    lines = capsys.readouterr().out.splitlines()
    families = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(families) == len(set(families)) > 10
    order = [found[1] for line in lines if (found := SAMPLE.fullmatch(line))]
    pieces = [name for place, name in enumerate(order) if place == 0 or order[place - 1] != name]
    assert pieces == families


def test_a_series_has_one_value_per_time_and_the_rest_is_reported(export, warehouse, make_run, capsys):
    for slowdown in (1.0, 2.0):
        warehouse.ingest(make_run(batch_sizes=(1,), sequence_lengths=(4,), slowdown=slowdown, iterations=3))
    (note,) = export("openmetrics", warehouse=warehouse)
    assert note == "left out: 1 result at the same time as another one of the series"
    found = [one for one in samples(capsys.readouterr().out) if one[0] == "benchhouse_latency_median_seconds"]
    assert len(found) == 1


def test_unmeasured_results_export_no_numbers(export):
    with pytest.raises(UsageError, match="the selection has no measured result"):
        export("openmetrics", selection="batch=64")


def test_one_quantity_in_two_units_is_one_family(export, warehouse, make_run, capsys):
    for name, value in (("duration_ms", 1500.0), ("duration_s", 2.5)):
        run = make_run(model_id=name, batch_sizes=(1,), sequence_lengths=(4,), iterations=3, with_doubtful=False)
        results = tuple(replace(one, metrics={**one.metrics, name: value}) for one in run.results)
        warehouse.ingest(replace(run, results=results))
    export("openmetrics", warehouse=warehouse)
    text = capsys.readouterr().out
    assert text.count("# TYPE benchhouse_duration_seconds gauge") == 1
    found = [one for one in samples(text) if one[0] == "benchhouse_duration_seconds"]
    assert sorted(float(value) for _, _, value, _ in found) == [1.5, 2.5]


def test_a_metric_whose_name_becomes_that_of_another_one_is_named(export, warehouse, make_run, capsys):
    run = make_run(batch_sizes=(1,), sequence_lengths=(4,), iterations=3, with_doubtful=False)
    others = {"a_b": 1.0, "a-b": 2.0, "a b": 1.0, "took_ms": 3.0, "took_s": 0.003}
    results = tuple(replace(one, metrics={**one.metrics, **others}) for one in run.results)
    warehouse.ingest(replace(run, results=results))
    (note,) = export("openmetrics", warehouse=warehouse)
    assert note == "left out: 1 value of metrics whose name becomes that of another one: a-b"
    found = {name: float(value) for name, _, value, _ in samples(capsys.readouterr().out)}
    assert (found["benchhouse_a_b"], found["benchhouse_took_seconds"]) == (1.0, 0.003)
