"""The result table, whose columns depend on the run."""

from dataclasses import replace

import pytest

from benchmarking.core.doubts import doubt, sentence
from benchmarking.core.plugins import family_names
from benchmarking.core.records import Doubt
from benchmarking.core.terminal import Page
from benchmarking.sweep.show.report import doubt_remarks, table

KINDS = ("run_queue_wait", "severe_outliers", "target_missed", "drift", "launch_spread")


def headings(run):
    """The words between two spaces or more of the first line below the title."""
    return [part.strip() for part in table(run).splitlines()[1].split("  ") if part.strip()]


def unwrapped(text):
    """The lines of a text, each continued line joined again."""
    return text.replace("\n    ", " ").splitlines()


def first_only(run, **fields):
    return replace(run, results=(replace(run.results[0], **fields),))


SPEED = ["median ms", "95 % interval", "p90 ms"]
TEXT = ["samples/s", "tokens/s"]
TOKENS = ["TTFT ms", "TPOT ms"]


@pytest.mark.parametrize(
    ("family", "axes", "rates"),
    [
        ("encoder-only", ["sequence"], TEXT),
        ("decoder-only", ["sequence", "new tokens"], [*TEXT, *TOKENS]),
        ("encoder-decoder", ["sequence", "new tokens"], [*TEXT, "encode ms", *TOKENS]),
        ("vision", ["image px"], ["images/s"]),
        ("vision-text", ["sequence", "image px"], TEXT),
        ("speech", ["new tokens", "audio s"], [*TEXT, "RTF", "encode ms", *TOKENS]),
        ("multimodal", ["sequence", "new tokens", "image px"], [*TEXT, "image enc ms", *TOKENS]),
        ("diffusion", ["image px", "steps"], ["images/s", "step ms"]),
        ("mixture-of-experts", ["sequence", "new tokens"], [*TEXT, *TOKENS]),
        ("state-space", ["sequence", "new tokens"], [*TEXT, *TOKENS]),
        ("rag", ["sequence", "new tokens", "documents", "top-k"], [*TEXT, "retrieve ms", *TOKENS]),
    ],
)
def test_columns_are_the_axes_and_the_numbers_of_the_family(make_run, family, axes, rates):
    assert headings(make_run(family=family)) == ["batch", *axes, *SPEED, *rates, "peak MB", "doubts"]


@pytest.mark.parametrize("family", family_names())
def test_tables_of_every_family_fit(make_run, family):
    doubts = tuple(Doubt(kind=kind, severity="noisy") for kind in KINDS)
    run = make_run(model_id="mistralai/Mixtral-8x7B-Instruct-v0.1", family=family, runtime="onnxruntime")
    run = replace(run, results=tuple(long_result(one, doubts) for one in run.results), cell=long_names(run.cell))
    text = table(run, Page(width=100))
    assert max(map(len, text.splitlines())) <= 100
    grid = text.split("\n\n")[0]
    assert grid.count("─" * 20) >= 1
    assert sum(set(line) == {"─"} for line in grid.splitlines()) == 1, "all of it in one table"
    for heading in ("median", "95 %", "peak", "doubts"):
        assert heading in grid


def long_result(one, doubts):
    """The result with numbers as wide as large models on slow machines have them."""
    metrics = {name: 123456.7 * (1 + value % 1) for name, value in one.metrics.items()}
    metrics |= {"output_error": 3.21e-7, "latency_ci_low_ms": 123456.7, "latency_ci_high_ms": 123498.7}
    return replace(one, validity="noisy", doubts=doubts, metrics=metrics)


def long_names(cell):
    """The cell with a device of a long name."""
    return replace(cell, device=replace(cell.device, name="NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition"))


def test_wide_tables_move_shared_values_up_and_list_dropped_columns(make_run):
    run = make_run(family="decoder-only", batch_sizes=(1, 4))
    run = replace(run, results=tuple(long_result(one, ()) for one in run.results))
    text = table(run, Page(width=100))
    assert text.splitlines()[0].endswith(", float32, new tokens 4")
    assert "new tokens" not in text.split("─")[0].partition("\n")[2]
    assert "not shown: samples/s (--json prints every metric)" in unwrapped(text)


def test_the_first_line_names_model_device_runtime_and_precision(make_run):
    run = first_only(make_run(family="vision"))
    title, head, _, row, *_ = table(run).splitlines()
    assert title == "bert-base-uncased (image-classification) on Test CPU, eager, float32"
    assert row.split() == ["1", "224", "8", "7.7", "..", "8.3", "8.8", "125", "910"]
    assert row.index("224") + 3 == head.index("image px") + len("image px"), "numbers end where their heading does"


def test_a_device_without_a_name_is_shown_by_its_selector(make_run):
    run = make_run()
    absent = replace(run.cell.device, selector="qnn", name=None, found=False)
    assert " on qnn, eager" in table(replace(run, cell=replace(run.cell, device=absent)))


def test_fewer_than_three_launches_have_no_interval_in_the_table(make_run):
    assert "95 % interval" in table(make_run(launches=3))
    assert "95 % interval" not in table(make_run(launches=2))


def test_failed_points_have_dashes_and_a_reason_below(make_run):
    run = make_run(family="vision", with_failed=True)
    *_, row = [line for line in table(run).splitlines() if line.strip().startswith("64 ")]
    assert row.split() == ["64", "384", *["-"] * 5, "failed"]
    assert "b64 image_size=384: failed: OutOfMemoryError: 64 GB asked, 16 GB there" in table(run).splitlines()


def test_a_run_of_failures_only_is_still_a_table(make_run):
    run = first_only(make_run(), status="timed_out", validity=None, error="too slow", metrics={})
    assert headings(run) == ["batch", "sequence", "doubts"]
    assert "b1 s32: timed out: too slow" in table(run)


def test_the_load_is_a_line_below_with_the_number_of_processes(make_run):
    run = make_run(launches=3)
    stages = [{"spawn": 0.5, "import": seconds} for seconds in (1.0, 2.5, 2.0)]
    loads = tuple(replace(load, stages_s=own) for load, own in zip(run.loads, stages, strict=True))
    assert "load: 2.5 s (median of 3 processes)" in table(replace(run, loads=loads)).splitlines()
    assert "load: 1.5 s" in table(replace(run, loads=loads[:1])).splitlines()
    assert "load:" not in table(replace(run, loads=()))


def test_pooled_percentiles_are_noted_below(make_run):
    run = make_run()
    first, *others = run.results
    run = replace(run, results=(replace(first, pooled_quantiles=("latency_p90_ms", "latency_p99_ms")), *others))
    assert f"p90 ms pooled over the calls of all processes at {first.point.label}" in table(run).splitlines()
    assert "together" not in table(make_run())


def test_tokenizing_time_has_a_column_if_anything_is_tokenized(make_run):
    run = make_run()
    assert "total ms" not in headings(run)
    metrics = {**run.results[0].metrics, "tokenize_ms": 1.5, "total_ms": 33.25}
    run = first_only(run, metrics=metrics)
    assert headings(run)[2:6] == ["median ms", "95 % interval", "p90 ms", "total ms"]
    assert "33.25" in table(run)


def test_a_run_without_results_is_its_title_and_weights(make_run):
    run = replace(make_run(), results=())
    assert table(run).splitlines()[0].startswith("bert-base-uncased (feature-extraction)")
    assert "weights: random" in table(run)


def test_requests_in_flight_are_shown_if_several(make_run):
    run = make_run()
    assert not {"in flight", "request ms"} & set(headings(run))
    assert "request ms: " not in table(run)
    point, metrics = replace(run.results[0].point, concurrency=4), {"latency_request_median_ms": 1.5}
    one = replace(run.results[0], point=point, metrics={**run.results[0].metrics, **metrics})
    run = replace(run, results=(one, *run.results[1:]))
    places = [headings(run).index(heading) for heading in ("in flight", "request ms")]
    shown = [line.split("  ") for line in table(run).splitlines()[3:5]]
    cells = [[text.strip() for text in line if text.strip()] for line in shown]
    assert [[line[place] for place in places] for line in cells] == [["4", "1.5"], ["1", "-"]]
    assert "request ms: a request by the runtime's own clock; median ms: a call from outside" in table(run)


@pytest.mark.parametrize("family", ["encoder-only", "rag"])
def test_each_row_shows_doubts_as_one_word_with_sentences_below(make_run, family):
    doubts = tuple(Doubt(kind=kind, severity="noisy", evidence={"share": 0.25}) for kind in KINDS)
    text = table(first_only(make_run(family=family), validity="noisy", doubts=doubts))
    assert text.splitlines()[3].endswith("  noisy")
    for kind in KINDS:
        (line,) = [line for line in unwrapped(text) if line.startswith(f"{kind} (b1 ")]
        assert line.endswith(sentence(kind))


def test_a_doubt_about_many_points_lists_the_first(make_run):
    run, doubts = make_run(), (Doubt(kind="drift", severity="noisy"),)
    (one,) = run.results[:1]
    points = [replace(one.point, batch_size=batch) for batch in (1, 2, 4, 8, 16)]
    run = replace(run, results=tuple(replace(one, point=at, validity="noisy", doubts=doubts) for at in points))
    assert any(line.startswith("drift (b1 s32, b2 s32, b4 s32 and 2 more): ") for line in unwrapped(table(run)))


def test_evidence_is_shown_for_invalid_results_and_unknown_kinds(make_run):
    evidence = {"relative_l2": 0.5, "launch": 0, "launches": [0]}
    doubts = (
        Doubt(kind="output_differs", severity="invalid", evidence=evidence),
        Doubt(kind="imported_doubt", severity="noisy", evidence={"share": 0.25}),
    )
    text = table(first_only(make_run(), validity="invalid", doubts=doubts))
    assert text.splitlines()[3].endswith("  invalid")
    lines = unwrapped(text)
    for kind, found in (("output_differs", "relative l2 0.5"), ("imported_doubt", "share 0.25")):
        assert any(line.startswith(f"{kind} (b1 s32): ") and line.endswith(f"Found: {found}.") for line in lines)


def test_every_line_below_the_table_fits_100_columns(make_run):
    doubts = tuple(Doubt(kind=kind, severity="noisy") for kind in KINDS)
    run = first_only(make_run(), validity="noisy", doubts=doubts)
    for width in (100, 60):
        assert max(map(len, table(run, Page(width=width)).splitlines())) <= width


def test_default_profile_runs_mention_longer_profiles_and_budget_cuts(make_run):
    quick = replace(first_only(make_run()), settings={"profile": "quick", "launches": 1, "budget_s": 150.0})
    quick = replace(quick, results=(replace(quick.results[0], launches=1),))
    assert unwrapped(table(quick))[-1] == (
        "profile quick: a first look, 1 launch of each point; --profile standard: 3 launches of each point, calls "
        "until the interval is within 2%"
    )
    assert "budget" not in table(quick)
    compared = replace(quick, results=(replace(quick.results[0], launches=5),))
    assert unwrapped(table(compared))[-1] == (
        "profile quick: a first look, 5 launches of each point; --profile standard: calls until the interval is "
        "within 2%"
    )
    interrupted = replace(compared, settings={**compared.settings, "launches": 8})
    assert "a first look, 8 launches of each point; " in unwrapped(table(interrupted))[-1]
    cut = first_only(quick, extra={"launches": [{"launch": 0, "budget": {"budget_s": 150.0, "max_time_s": 1.0}}]})
    assert "time budget of 150 s: fewer calls at b1 s32" in table(cut)
    assert "--profile standard" not in table(make_run())


def test_doubts_of_severity_info_are_not_shown(make_run):
    run = first_only(make_run(), doubts=(Doubt(kind="coarse_clock", severity="info"),))
    assert "coarse_clock" not in table(run)


@pytest.mark.parametrize(
    ("value", "text"), [(12345.678, "12346"), (999.96, "1000"), (0.25, "0.25"), (0.00001234, "1.234e-05"), (0.0, "0")]
)
def test_numbers_have_four_digits_and_an_exponent_only_below_0_0001(make_run, value, text):
    run = first_only(make_run(family="speech"))
    run = first_only(run, metrics={**run.results[0].metrics, "real_time_factor": value})
    assert f" {text} " in table(run).splitlines()[3]


def test_memory_of_the_device_comes_before_memory_of_the_process(make_run):
    run = first_only(make_run())
    both = {**run.results[0].metrics, "memory_device_reserved_peak_mb": 512.0}
    assert table(first_only(run, metrics=both)).splitlines()[3].endswith(" 512")


@pytest.mark.parametrize(
    ("error", "text"), [(0.0, "0"), (0.00541, "0.0054"), (3.21e-7, "3.2e-07"), (0.28284, "0.28"), (1.0, "1")]
)
def test_output_error_has_a_column_if_known(make_run, error, text):
    run = first_only(make_run())
    assert "error" not in headings(run)
    compared = first_only(run, metrics={**run.results[0].metrics, "output_error": error})
    assert headings(compared)[-2:] == ["error", "doubts"]
    assert table(compared).splitlines()[3].split()[-1] == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        ({"compile_s": 3.25}, "3.25"),
        ({"compile_s": 20.0, "compile_cold_s": 35.25, "compile_warm_s": 6.5}, "35.25, 6.5 warm"),
        ({"compile_s": 6.5, "compile_warm_s": 6.5}, "6.5 warm"),
    ],
)
def test_compile_time_has_a_column_if_anything_is_compiled(make_run, seconds, text):
    run = first_only(make_run())
    assert "compile s" not in headings(run)
    compiled = first_only(run, metrics={**run.results[0].metrics, **seconds})
    assert headings(compiled)[-2:] == ["compile s", "doubts"]
    assert table(compiled).splitlines()[3].endswith(f"  {text}")


def test_the_evidence_is_shown_where_the_advice_refers_to_it():
    short = doubt("short_window", window_s=1.0, reply_s=0.5, needed_duration_s=30.0)
    (line,) = doubt_remarks([("4/s", short), ("8/s", short)])
    assert line.startswith("short_window (4/s, 8/s): ")
    assert "raise --duration to the needed duration in the evidence" in line
    assert line.endswith("Found at 4/s: window 1 s, reply 0.5 s, needed duration 30 s.")
    (line,) = doubt_remarks([("4/s", doubt("cpu_pressure"))])
    assert "Found: " not in line


def test_a_rate_in_the_evidence_is_no_time():
    (line,) = doubt_remarks([("12/s", doubt("rate_not_achieved", requested_per_s=12.0, achieved_share=0.8))])
    assert line.endswith("Found: requested 12/s, achieved share 0.8.")
    (line,) = doubt_remarks([("12/s", doubt("short_window", reply_s=None, window_s=1.0))])
    assert line.endswith("Found: reply unknown, window 1 s.")
