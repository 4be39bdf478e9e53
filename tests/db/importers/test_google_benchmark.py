"""A file written by Google Benchmark 1.9.5, value by value."""

from __future__ import annotations

import json

import pytest

from db.importers.google_benchmark import PLUGIN, parsed_name
from db.importers.support.files import read_file
from tests.helpers.left_out import left_out
from tests.helpers.paths import FIXTURES

FILE = FIXTURES / "imports/google_benchmark/repetitions.json"


@pytest.fixture(scope="module")
def runs():
    return {run.cell.subject: run for run in PLUGIN.runs(read_file(FILE))}


@pytest.fixture
def changed(edited):
    """Applies a function to the JSON of the file; returns the runs of the result."""
    return lambda change: {run.cell.subject: run for run in PLUGIN.runs(read_file(edited(FILE, change)))}


def test_a_function_is_a_run_and_each_set_of_arguments_a_result(runs):
    assert list(runs) == ["sum_million", "sort_list", "custom_counters", "broken"]
    assert [result.point.axes for result in runs["sort_list"].results] == [{"arg0": 64}, {"arg0": 128}]
    run = runs["sort_list"]
    assert (run.started_at, run.provenance.host, run.origin.tool_version) == (
        "2026-11-21T13:17:06+00:00",
        "bench-machine",
        "1.9.5",
    )


def test_repetitions_are_blocks_of_iterations_in_ms(runs):
    (samples,) = runs["sort_list"].results[0].samples
    assert samples.values == pytest.approx([0.00099676660146135876, 0.00080262555690561521, 0.00058470897197074323])
    assert samples.inner_loops == 16897


def test_the_librarys_aggregates_equal_ours_and_are_kept(runs):
    result = runs["sort_list"].results[0]
    aggregates = {one["aggregate_name"]: one for one in result.extra["kept"]["aggregates"]}
    assert result.metrics["latency_mean_ms"] == pytest.approx(aggregates["mean"]["real_time"] / 1000)
    assert result.metrics["latency_median_ms"] == pytest.approx(aggregates["median"]["real_time"] / 1000)
    assert aggregates["stddev"]["real_time"] > 0
    assert result.missing["latency_std_ms"] == "not_applicable: the mean of a block of calls hides how they vary"
    assert result.metrics["cpu_time_ms"] == pytest.approx(aggregates["mean"]["cpu_time"] / 1000)
    assert result.metrics["throughput_samples_per_sec"] == pytest.approx(85053213.798152104)


def test_nanoseconds_are_converted_and_own_counters_are_metrics(runs):
    assert runs["sum_million"].results[0].metrics["latency_median_ms"] == pytest.approx(0.36312103271484375)
    assert runs["custom_counters"].results[0].metrics["counter_foo"] == 119816


def test_an_error_is_a_failed_result(runs):
    assert (runs["broken"].status, runs["broken"].results[0].error) == ("failed", "Failed to read data!")


def test_cpus_are_distinguished_by_their_caches(runs):
    assert runs["sort_list"].hardware.device.name == (
        "CPU (2 logical processors; L1 Data 32 KiB, L1 Instruction 32 KiB, L2 Unified 512 KiB, L3 Unified 32768 KiB)"
    )


def test_aggregates_alone_fill_the_columns(changed):
    def change(data):
        data["benchmarks"] = [one for one in data["benchmarks"] if one["run_type"] == "aggregate"]

    result = changed(change)["sort_list"].results[0]
    assert result.metrics["latency_median_ms"] == pytest.approx(0.00080262555690561521)
    assert (result.samples, result.iterations) == ((), 3)


def test_complexity_is_kept_with_its_function(changed):
    fitted = {"name": "sort_list_BigO", "run_name": "sort_list", "run_type": "aggregate", "aggregate_name": "BigO"}
    runs = changed(lambda data: data["benchmarks"].append({**fitted, "big_o": "NlgN", "real_coefficient": 0.5}))
    assert runs["sort_list"].origin.kept["complexity"][0]["big_o"] == "NlgN"
    assert "complexity" not in runs["sum_million"].origin.kept


@pytest.mark.parametrize(
    ("text", "function", "arguments", "mode"),
    [
        ("BM_Sort/64/order:2", "BM_Sort", {"arg0": 64, "order": 2}, {}),
        (
            "BM_Sort<int, std::less>/8/16/threads:4",
            "BM_Sort<int, std::less>",
            {"arg0": 8, "arg1": 16},
            {},
        ),
        ("BM_Read/min_time:2.000/repeats:3/real_time", "BM_Read", {}, {"clock": "real_time"}),
        ("BM_Read/process_time/real_time", "BM_Read", {}, {"clock": "process_time/real_time"}),
        ("vec/push_back/kind:small", "vec/push_back", {}, {"variant": "kind=small"}),
        ("BM_Denoise/steps:0.5", "BM_Denoise", {}, {"variant": "steps=0.5"}),
        ("dup/n:300/n:2/5", "dup", {"n": 300, "n_2": 2, "arg0": 5}, {}),
        ("args/args:7/3", "args", {"args": 7, "arg0": 3}, {}),
        ("fit/iterations:10/8", "fit", {"iterations": 10, "arg0": 8}, {}),
        ("fit/min_time:2/iterations:10", "fit", {"min_time": 2}, {}),
        ("onnx:bert/steps:8/fp16", "onnx:bert/fp16", {"steps": 8}, {}),
    ],
)
def test_a_name_is_split_into_function_and_arguments(text, function, arguments, mode):
    name = parsed_name(text)
    assert (name.function, name.arguments.point.axes) == (function, arguments)
    assert {**name.clock, **name.arguments.mode} == mode


def test_arguments_that_are_axes_are_in_their_columns():
    found = parsed_name("BM_Forward/batch:8/input_len:128/output_len:16/threads:4/dtype:bf16/model:gpt2").arguments
    assert (found.point.batch_size, found.point.sequence_length, found.point.new_tokens) == (8, 128, 16)
    assert found.setup == {"model_id": "gpt2", "precision": "bfloat16", "num_threads": 4}
    assert found.mode == {"benchmark": "BM_Forward"}


ENTRY = {"run_type": "iteration", "real_time": 10.0, "cpu_time": 2.0, "time_unit": "ms"}


def axes_of(tmp_path, *entries):
    """The axes of the results of these names, with what the entries have further."""
    benchmarks = [{**ENTRY, "name": name, "run_name": name, **others} for name, others in entries]
    (tmp_path / "out.json").write_text(json.dumps({"context": {}, "benchmarks": benchmarks}))
    runs = PLUGIN.runs(read_file(tmp_path / "out.json"))
    return [result.point.axes for run in runs for result in run.results]


MEAN = {"run_type": "aggregate", "aggregate_name": "mean", "iterations": 3}


@pytest.mark.parametrize(
    ("entries", "axes"),
    [
        ([("f/iterations:50", {"iterations": 50, "repetitions": 1})], [{}]),
        ([("f/iterations:50/real_time/threads:4", {"iterations": 200, "threads": 4})], [{}]),
        ([("f/iterations:50", {"error_occurred": True, "iterations": 0})], [{}]),
        ([("f/iterations:50", MEAN)], [{}]),
        (
            [("f/iterations:10", {"iterations": 20182}), ("f/iterations:1000", {"iterations": 1000})],
            [{"iterations": 10}, {"iterations": 1000}],
        ),
        ([("f/iterations:10", MEAN), ("f/iterations:1000", MEAN)], [{"iterations": 10}, {"iterations": 1000}]),
        ([("f/repeats:3", {"iterations": 9, "repetitions": 3})], [{}]),
        ([("f/repeats:3", {"iterations": 9, "repetitions": 1})], [{"repeats": 3}]),
    ],
)
def test_an_argument_that_is_called_like_a_setting_is_an_axis(tmp_path, entries, axes):
    assert axes_of(tmp_path, *entries) == axes


@pytest.mark.parametrize(
    ("version", "clock", "latency_ms", "rate"),
    [
        (None, "/real_time", 40, ("throughput_samples_per_sec", 400)),
        ("1.8.5", "/real_time", 40, ("throughput_samples_per_sec", 400)),
        ("v1.8.5", "", 40, ("items_per_cpu_sec", 400)),
        ("v1.9.0", "/real_time", 10, ("throughput_samples_per_sec", 1600)),
        ("v1.9.4", "", 10, ("items_per_cpu_sec", 400)),
        ("1.9.5", "/manual_time", 10, ("throughput_samples_per_sec", 400)),
        ("v1.9.5-12-gabc", "", 10, ("items_per_cpu_sec", 100)),
        ("v1.8.5-30-gabc", "/real_time", None, ("counter_items_per_second", 400)),
        ("0.0.0", "", None, ("counter_items_per_second", 400)),
    ],
)
def test_times_and_rates_of_several_threads_are_read_as_their_version_of_the_library_states_them(
    tmp_path, version, clock, latency_ms, rate
):
    name = f"BM_B{clock}/threads:4"
    entry = {**ENTRY, "name": name, "iterations": 100, "threads": 4, "items_per_second": 400.0}
    data = {"context": {"library_version": version}, "benchmarks": [entry, {**entry, "name": f"BM_B{clock}/threads:1"}]}
    data["benchmarks"][1]["threads"] = 1
    (tmp_path / "out.json").write_text(json.dumps(data))
    (of_four,), (of_one,) = (run.results for run in PLUGIN.runs(read_file(tmp_path / "out.json")))
    assert of_four.metrics.get("latency_median_ms") == latency_ms
    assert of_four.metrics.get("real_time_ms") == (None if latency_ms else 10)
    assert of_four.metrics[rate[0]] == rate[1]
    assert "the file names none" in of_four.missing["latency_median_ms"] if latency_ms is None else True
    assert of_one.metrics["latency_median_ms"] == 10


def test_the_csv_does_not_say_which_time_several_threads_have(tmp_path):
    header = "name,iterations,real_time,cpu_time,time_unit,items_per_second"
    rows = ["f/threads:2,10,5,4,ms,200", "g/threads:2_mean,3,5,4,ms,200", "g/threads:2_stddev,3,1,1,ms,2"]
    (tmp_path / "a.csv").write_text("\n".join([header, *rows]))
    for run in PLUGIN.runs(read_file(tmp_path / "a.csv")):
        (result,) = run.results
        assert result.metrics == {"cpu_time_ms": 4, "real_time_ms": 5, "counter_items_per_second": 200}
        assert result.missing["throughput_samples_per_sec"] == result.missing["latency_median_ms"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda data: data["benchmarks"][0].update(time_unit="h"),
            r"benchmarks\[0\]\.time_unit: expected ns, us, ms, s",
        ),
        (lambda data: data["benchmarks"][0].pop("real_time"), r"benchmarks\[0\]\.real_time: is missing"),
        (lambda data: data["context"].update(date="now"), r"context\.date: expected a time in ISO 8601, found 'now'"),
        (lambda data: data["benchmarks"][0].update(cpu_time="x"), r"benchmarks\[0\]\.cpu_time: expected a number"),
    ],
)
def test_an_invalid_value_is_one_line_with_its_place(changed, change, message):
    with left_out(rf"changed\.json: {message}"):
        changed(change)


def test_the_csv_has_the_numbers_of_the_json_and_its_failures():
    sort, broken = PLUGIN.runs(read_file(FIXTURES / "imports/google_benchmark" / "repetitions.csv"))
    small, large = sort.results
    assert [one.point.axes for one in (small, large)] == [{"arg0": 64}, {"arg0": 512}]
    (samples,) = large.samples
    assert samples.values == (pytest.approx(6.97549e-3), pytest.approx(6.9349e-3), pytest.approx(6.93583e-3))
    assert (samples.inner_loops, large.metrics["latency_median_ms"]) == (1022, pytest.approx(6.93583e-3))
    assert large.metrics["cpu_time_ms"] == pytest.approx((6.96554 + 6.93528 + 6.93586) / 3 * 1e-3)
    assert large.metrics["throughput_samples_per_sec"] == pytest.approx((7.35047e7 + 7.38255e7 + 7.38192e7) / 3)
    assert [one["aggregate_name"] for one in large.extra["kept"]["aggregates"]] == ["mean", "median", "stddev", "cv"]
    (failed,) = broken.results
    assert (failed.status, failed.error) == ("failed", 'no, "data"')


def test_aggregates_without_a_time_are_not_a_valid_result(tmp_path):
    data = json.loads((FIXTURES / "imports/google_benchmark" / "repetitions.json").read_text())
    data["benchmarks"] = [one for one in data["benchmarks"] if one.get("aggregate_name") == "cv"][:1]
    (tmp_path / "a.json").write_text(json.dumps(data))
    with left_out("no latency, rate or throughput that is understood"):
        list(PLUGIN.runs(read_file(tmp_path / "a.json")))


def test_a_rate_over_the_cpu_time_is_no_throughput(tmp_path):
    entry = {"run_type": "iteration", "iterations": 100, "real_time": 10.0, "cpu_time": 2.0, "time_unit": "ms"}
    names = ("infer/batch:4", "infer/batch:4/real_time")
    data = {"context": {}, "benchmarks": [{"name": name, **entry, "items_per_second": 400.0} for name in names]}
    (tmp_path / "out.json").write_text(json.dumps(data))
    of_cpu, of_wall = (run.results[0] for run in PLUGIN.runs(read_file(tmp_path / "out.json")))
    assert "throughput_samples_per_sec" not in of_cpu.metrics
    assert of_cpu.metrics["items_per_cpu_sec"] == 400
    assert "CPU time" in of_cpu.missing["throughput_samples_per_sec"]
    assert of_wall.metrics["throughput_samples_per_sec"] == 400


def test_aggregates_of_the_first_versions_are_told_by_their_names():
    file = read_file(FILE.with_name("first_versions.json"))
    fib, own = PLUGIN.runs(file)
    (result,) = fib.results
    expected = {"latency_mean_ms": 2.8003950088, "latency_median_ms": 2.80032594}
    expected |= {"cpu_time_ms": 2.8001926096, "throughput_samples_per_sec": 357.0}
    assert {name: result.metrics[name] for name in expected} == pytest.approx(expected)
    assert "hides how they vary" in result.missing["latency_std_ms"]  # of repetitions
    assert (result.iterations, fib.started_at, file.left_out) == (5, "2018-08-15T12:53:18+00:00", {})
    assert (own.cell.subject, own.results[0].metrics["latency_mean_ms"]) == ("sum_mean", 0.0125)


def test_a_counter_that_cannot_be_is_left_out_alone(changed):
    def too_large(data):
        for entry in data["benchmarks"]:
            if entry["name"].startswith("custom_counters"):
                entry["foo"] = 1e300
                entry["bar"] = 2.0

    (result,) = changed(too_large)["custom_counters"].results
    assert result.metrics["latency_median_ms"] > 0
    assert "counter_foo" not in result.metrics
    assert result.metrics["counter_bar"] == 2.0
    assert result.missing["counter_foo"] == "left_out: 1e+300 in the file"


def test_a_time_of_0_is_left_out_and_named(tmp_path):
    entry = {"run_type": "iteration", "iterations": 10, "cpu_time": 0, "time_unit": "ns"}
    times = {"BM_a/8": 5.0, "BM_b/8": 0, "BM_c/8": 0}
    entries = [{"name": name, **entry, "real_time": time} for name, time in times.items()]
    entries[2] |= {"run_type": "aggregate", "aggregate_name": "mean", "run_name": "BM_c/8"}
    (tmp_path / "out.json").write_text(json.dumps({"context": {}, "benchmarks": entries}))
    file = read_file(tmp_path / "out.json")
    runs = {run.cell.subject: run for run in PLUGIN.runs(file)}
    assert set(runs) == {"BM_a", "BM_b"}
    (result,) = runs["BM_b"].results
    assert result.metrics == {"cpu_time_ms": 0}
    assert "latency_median_ms" in result.missing
    assert [one.text for one in file.left_out] == [
        "benchmarks[1].real_time: 0, which is no time of 'BM_b/8'",
        "benchmarks[2].real_time: 0, which is no time of 'BM_c/8'",
    ]


def test_what_a_program_printed_between_two_tables_is_no_benchmark(tmp_path):
    """As by `./bench --benchmark_format=csv >> all.csv 2>&1`, twice, with a line of the shell's at the end."""
    table = FILE.with_suffix(".csv").read_text()
    (tmp_path / "all.csv").write_text(f"{table}\n{table}Done in 5 s\n")
    file = read_file(tmp_path / "all.csv")
    assert [run.cell.subject for run in PLUGIN.runs(file)] == ["sort_list", "broken"] * 2
    reasons = [str(one) for one in file.left_out]
    assert [reason for reason in reasons if "not a row of the table" not in reason or "Done in 5 s" not in reason] == []


def test_the_context_that_is_printed_above_a_table_is_that_of_the_json(tmp_path):
    table = FILE.with_suffix(".csv").read_text()
    scaled = table.replace("ASLR is enabled", "CPU scaling is enabled").replace("34:33+00:00", "34:34+00:00")
    (tmp_path / "all.csv").write_text(table + scaled)
    file = read_file(tmp_path / "all.csv")
    first, _, second, _ = PLUGIN.runs(file)
    assert [run.started_at for run in (first, second)] == ["2026-11-22T14:34:33+00:00", "2026-11-22T14:34:34+00:00"]
    assert first.hardware.cpu_threads == 2
    assert first.cell.device.name == (
        "CPU (2 logical processors; L1 Data 32 KiB, L1 Instruction 32 KiB, L2 Unified 512 KiB, L3 Unified 32768 KiB)"
    )
    assert [doubt.kind for doubt in first.results[0].doubts] == []
    assert [doubt.kind for doubt in second.results[0].doubts] == ["governor"]
    assert not file.left_out


def test_a_column_name_with_a_line_break_moves_no_context_to_another_table(tmp_path):
    header = 'name,iterations,"my\nctr",real_time,cpu_time,time_unit'
    dates = [f"2026-11-22T14:34:0{number}+00:00" for number in range(4)]
    tables = [f"{date}\n{header}\nf,5,1,100,90,ns\n" for date in dates]
    tables[0] = tables[0].replace("my\nctr", "my ctr")
    (tmp_path / "a.csv").write_text("".join(tables))
    file = read_file(tmp_path / "a.csv")
    assert [run.started_at for run in PLUGIN.runs(file)] == dates
    assert not file.left_out


@pytest.mark.parametrize(
    ("labels", "variants"), [(("fp16", "int8"), ["label=fp16", "label=int8"]), ((None, None), [None, "instance=#2"])]
)
def test_benchmarks_of_one_name_are_told_apart_and_repetitions_are_not(tmp_path, labels, variants):
    entries = [
        {
            "name": "BM_B",
            "run_name": "BM_B",
            "run_type": "iteration",
            "iterations": 100,
            "time_unit": "us",
            "family_index": family,
            "per_family_instance_index": 0,
            "repetition_index": repetition,
            **{"real_time": 2.0 + 3 * family, "cpu_time": 2.0} | ({"label": label} if label else {}),
        }
        for repetition in (0, 1)
        for family, label in enumerate(labels)
    ]
    context = {"cpu_scaling_enabled": True, "library_build_type": "debug"}
    (tmp_path / "out.json").write_text(json.dumps({"context": context, "benchmarks": entries}))
    runs = list(PLUGIN.runs(read_file(tmp_path / "out.json")))
    assert [run.cell.runtime_mode.get("variant") for run in runs] == variants
    results = [result for run in runs for result in run.results]
    assert [tuple(result.samples[0].values) for result in results] == [(0.002, 0.002), (0.005, 0.005)]
    assert {tuple(doubt.kind for doubt in result.doubts) for result in results} == {
        ("undated", "governor", "debug_library")
    }


@pytest.mark.parametrize("has_aggregates", [True, False])
def test_rows_of_one_name_are_told_apart_by_their_labels(tmp_path, has_aggregates):
    """The CSV numbers neither benchmarks nor repetitions, of which the last label here is none of its first."""
    rows = []
    for label, time_us in (("fp16", 2), ("int8", 5)):
        repetitions = ["", "_mean", "_median", "_stddev"] if has_aggregates else [""]
        rows += [f'"BM_B{end}",100,{time_us},2,us,,,"{label}",,' for end in repetitions]
        rows.insert(-3, f'"BM_B",100,{time_us},2,us,,,"{label} hot",,') if has_aggregates else None
    header = "name,iterations,real_time,cpu_time,time_unit,bytes_per_second,items_per_second,label,error_occurred,"
    (tmp_path / "out.csv").write_text("\n".join([f"{header}error_message", *rows]) + "\n")
    runs = list(PLUGIN.runs(read_file(tmp_path / "out.csv")))
    assert [run.cell.runtime_mode["variant"] for run in runs] == ["label=fp16", "label=int8"]
    count = 2 if has_aggregates else 1
    values = [tuple(run.results[0].samples[0].values) for run in runs]
    assert values == [(0.002,) * count, (0.005,) * count]


def test_executions_that_appended_their_tables_to_one_file_are_no_repetitions(tmp_path):
    header = "name,iterations,real_time,cpu_time,time_unit"
    rows = ["BM_x/8,1000,10,10,ns", "BM_x/8,1000,12,12,ns", header, "BM_x/8,1000,20,20,ns"]
    (tmp_path / "two.csv").write_text("\n".join([header, *rows]))
    (first, second) = PLUGIN.runs(read_file(tmp_path / "two.csv"))
    assert [run.results[0].metrics["latency_median_ms"] for run in (first, second)] == pytest.approx([1.1e-5, 2e-5])
    assert [run.results[0].iterations for run in (first, second)] == [2, 1]
    assert first.cell == second.cell
    assert first.run_id != second.run_id


def test_a_statistic_of_the_benchmarks_own_is_no_benchmark(tmp_path):
    header = "name,iterations,real_time,cpu_time,time_unit"
    rows = ["BM_x,100,10,10,ns", "BM_x,100,12,12,ns", "BM_x,100,30,30,ns", "BM_x_mean,3,17,17,ns", "BM_x_cv,3,1,1,"]
    others = ["BM_x_max,3,30,30,ns", "BM_x_p_90,3,28,28,ns", "BM_x_fast,400,1,1,ns"]
    (tmp_path / "a.csv").write_text("\n".join([header, *rows, *others]))
    of_csv = list(PLUGIN.runs(read_file(tmp_path / "a.csv")))
    assert [run.cell.workload.model_id for run in of_csv] == ["BM_x", "BM_x_fast"]
    kept = of_csv[0].results[0].extra["kept"]["aggregates"]
    assert [one["aggregate_name"] for one in kept] == ["mean", "cv", "max", "p_90"]
    entries = [dict(zip(header.split(","), row.split(","), strict=True)) for row in (*rows, *others)]
    for entry in entries:
        entry |= {name: int(entry[name]) for name in ("iterations", "real_time", "cpu_time")}
    (tmp_path / "a.json").write_text(json.dumps({"context": {}, "benchmarks": entries}))
    of_json = PLUGIN.runs(read_file(tmp_path / "a.json"))
    assert [run.cell.workload.model_id for run in of_json] == ["BM_x", "BM_x_fast"]
