"""The charts against batch size.

Runs of `make_run` have a median of batch x sequence / 4 ms and an interval of +-0.3 ms.
"""

from dataclasses import replace

import pytest

from visualize.drawing.figure import NotDrawn
from visualize.drawing.picture import picture
from visualize.drawing.style import COLOURS

LATENCY, THROUGHPUT, MEMORY = "latency_vs_batch_size", "throughput_vs_batch_size", "memory_vs_batch_size"


def test_latency_has_one_line_of_medians_per_sequence_length(make_run, figures, see):
    (figure,) = figures(LATENCY, make_run(batch_sizes=(1, 2, 4)))
    (axes,) = figure.axes
    assert see.points(axes, "line 32") == [(1, 8), (2, 16), (4, 32)]
    assert see.points(axes, "line 128") == [(1, 32), (2, 64), (4, 128)]
    assert see.points(axes, "valid 32") == see.points(axes, "line 32")
    assert see.legend(figure) == ["32", "128"]
    assert figure.legends[0].get_title().get_text() == "Sequence length (tokens)"


def test_the_band_is_the_measured_interval(make_run, figures, see):
    (figure,) = figures(LATENCY, make_run(batch_sizes=(1, 2, 4), sequence_lengths=(32,)))
    assert see.band(figure.axes[0], "band 32") == [(1, 7.7, 8.3), (2, 15.7, 16.3), (4, 31.7, 32.3)]
    assert see.says(figure, "Band or whisker: 95 % interval of the typical launch.")


def test_the_interval_of_throughput_is_that_of_the_launches_own(make_run, figures, see):
    """Calls that are slow now and then make it vary more than the median latency, which is the same in each launch:
    here 100 calls/s, times and divided by exp(4.303 ln 1.25 / sqrt 3) = 1.741."""

    def with_slow_calls(result):
        times = [(9.0, 9.0, 9.0, 5.0), (9.0, 9.0, 9.0, 13.0), (9.0, 9.0, 9.0, 23.0)]  # means of 8, 10 and 12.5 ms
        samples = tuple(replace(one, values=values) for one, values in zip(result.samples, times, strict=True))
        rate = 100.0 * result.point.batch_size
        return replace(result, samples=samples, metrics={**result.metrics, "throughput_samples_per_sec": rate})

    run = make_run(sequence_lengths=(32,))
    (figure,) = figures(THROUGHPUT, replace(run, results=tuple(map(with_slow_calls, run.results))))
    expected = [(1, 57.446, 174.076), (2, 114.893, 348.151)]
    assert see.band(figure.axes[0], "band 32") == [pytest.approx(corner, rel=1e-4) for corner in expected]
    (figure,) = figures(THROUGHPUT, make_run(sequence_lengths=(32,), launches=2))
    assert see.says(figure, "No intervals: they need at least 3 launches per point.")


def test_an_interval_without_neighbours_is_a_whisker(make_run, figures, see, alter):
    run = make_run(batch_sizes=(1, 2, 4), sequence_lengths=(32,))
    bare = alter.metrics(latency_ci_low_ms=None, latency_ci_high_ms=None)
    (figure,) = figures(LATENCY, alter.results(run, bare, where=lambda point: point.batch_size == 2))
    assert see.labels(figure.axes[0]) == ["line 32", "valid 32", "whisker 32", "whisker 32"]
    (figure,) = figures(LATENCY, alter.results(run, bare, where=lambda point: point.batch_size < 4))
    assert see.whiskers(figure.axes[0], "whisker 32") == (4, 31.7, 32.3)


def test_an_interval_that_excludes_its_median_is_not_drawn(make_run, figures, see, alter):
    """An older version stored intervals of some of the launches only."""
    run = make_run(batch_sizes=(1, 2), sequence_lengths=(32,))
    faulty = alter.metrics(latency_ci_low_ms=8.5, latency_ci_high_ms=9.0)
    (figure,) = figures(LATENCY, alter.results(run, faulty, where=lambda point: point.batch_size == 1))
    assert see.labels(figure.axes[0]) == ["line 32", "valid 32", "whisker 32"]
    assert see.whiskers(figure.axes[0], "whisker 32")[0] == 2
    assert see.says(figure, "some points have none")


@pytest.mark.parametrize("name", [LATENCY, THROUGHPUT, MEMORY])
def test_a_single_point_is_drawn_only_where_it_is_asked_for(make_run, outcomes, name):
    (outcome,) = outcomes(name, make_run(batch_sizes=(4,), sequence_lengths=(32,)))
    assert isinstance(outcome, NotDrawn)
    assert outcome.why == "measured at one batch size, and not along one other axis"
    assert [len(panel.lines) for panel in outcome.alone.panels] == [1]


@pytest.mark.parametrize("name", [LATENCY, THROUGHPUT, MEMORY])
def test_a_single_batch_size_is_drawn_against_the_sequence_lengths(make_run, figures, see, name):
    (figure,) = figures(name, make_run(batch_sizes=(4,)))
    (axes,) = figure.axes
    assert axes.get_xlabel() == "Sequence length (tokens)"
    assert len(see.points(axes, "line batch 4")) == 2
    assert see.texts(figure)[0].endswith("vs sequence length: bert-base-uncased")


def test_a_single_batch_size_is_drawn_against_the_only_axis_that_varies(make_run, outcomes, alter):
    run = make_run(model_id="vit", family="vision", batch_sizes=(4,), axes={"image_size": (224, 384)})
    (figure,) = outcomes(LATENCY, run)
    assert figure.title == "Latency vs image size: vit"
    (panel,) = figure.panels
    assert [mark.x for mark in panel.lines[0].marks] == [224, 384]
    two = make_run(model_id="own", family="vision", batch_sizes=(4,), axes={"image_size": (224, 384), "n": (1, 2)})
    (outcome,) = outcomes(LATENCY, two)
    assert isinstance(outcome, NotDrawn)


def test_a_chart_that_also_shows_sequence_lengths_shows_only_these_for_a_single_batch_size(make_run, figures, see):
    run = make_run(model_id="gpt2", family="decoder-only", batch_sizes=(4,))
    (figure,) = figures("time_to_first_token", run)
    (axes,) = figure.axes
    assert axes.get_xlabel() == "Sequence length (tokens)"
    assert len(see.points(axes, "line batch 4")) == 2
    assert figure.legends == []


def test_the_caption_mentions_missing_intervals(make_run, figures, see, alter):
    run = alter.results(make_run(), alter.metrics(latency_ci_low_ms=None, latency_ci_high_ms=None))
    (figure,) = figures(LATENCY, run)
    assert see.labels(figure.axes[0]) == ["line 128", "line 32", "valid 128", "valid 32"]
    assert see.says(figure, "No intervals are known."), "the points have the launches that an interval needs"


def test_fewer_than_three_launches_give_no_interval(make_run, figures, see):
    (figure,) = figures(LATENCY, make_run(launches=2))
    assert see.labels(figure.axes[0]) == ["line 128", "line 32", "valid 128", "valid 32"]
    assert see.says(figure, "No intervals: they need at least 3 launches per point.")


def test_an_invalid_point_is_crossed_and_not_on_the_line(make_run, figures, see, alter):
    run = make_run(batch_sizes=(1, 2, 4), sequence_lengths=(32,))
    (figure,) = figures(LATENCY, alter.results(run, alter.invalid, where=lambda point: point.batch_size == 2))
    (axes,) = figure.axes
    assert see.points(axes, "line 32") == [(1, 8), (4, 32)]
    assert see.points(axes, "invalid 32") == see.points(axes, "crossed 32") == [(2, 16)]
    assert see.face(axes, "invalid 32") == "#ffffff"
    assert see.legend(figure) == ["32", "crossed: invalid, not ranked"]
    assert see.says(figure, "Crossed: 1 of 3 points is invalid (nan output).")


def test_doubtful_points_are_hollow_and_explained(make_run, figures, see, alter):
    run = alter.results(make_run(sequence_lengths=(32,)), alter.noisy, where=lambda point: point.batch_size == 2)
    (figure,) = figures(LATENCY, run)
    (axes,) = figure.axes
    assert see.points(axes, "line 32") == [(1, 8), (2, 16)]
    assert see.points(axes, "valid 32") == [(1, 8)]
    assert see.points(axes, "doubtful 32") == [(2, 16)]
    assert see.face(axes, "doubtful 32") == "#ffffff"
    assert see.face(axes, "valid 32").upper() == COLOURS[0]
    assert see.legend(figure) == ["32", "hollow: doubtful"]
    assert see.says(figure, "Hollow: 1 of 2 points is doubtful (other programs were")


def test_failed_points_are_counted_with_their_reason(make_run, figures, see):
    (figure,) = figures(LATENCY, make_run(with_failed=True))
    assert see.labels(figure.axes[0]) == ["band 128", "band 32", "line 128", "line 32", "valid 128", "valid 32"]
    note = "Not drawn, of 5 points: 1 failed (batch 64, sequence 512): OutOfMemoryError: 64 GB asked, 16 GB there."
    assert note in see.texts(figure)


def test_a_line_ends_where_a_point_failed(make_run, outcomes, alter):
    run = make_run(batch_sizes=(1, 2, 4, 8), sequence_lengths=(32, 128))
    run = alter.results(run, alter.failed, where=lambda point: point.label == "b4 s32")
    (figure,) = outcomes(LATENCY, run)
    lines = [[mark.x for mark in line.joined] for line in figure.panels[0].lines]
    assert lines == [[1, 2], [8], [1, 2, 4, 8]]


def test_a_reason_replaces_the_picture_if_every_point_failed(make_run, outcomes, alter):
    (outcome,) = outcomes(LATENCY, alter.results(make_run(), alter.failed))
    assert outcome == NotDrawn(
        what="Latency vs batch size: bert-base-uncased on Test CPU (cpu) · eager · float32",
        why="nothing to draw, of 4 points: 4 failed; first error: OutOfMemoryError: too big",
    )


def test_the_subtitle_lists_what_all_points_share(make_run, figures, see):
    (figure,) = figures(LATENCY, make_run(model_id="gpt2", family="decoder-only"))
    title, subtitle, provenance, *_ = see.texts(figure)
    assert title == "gpt2: the latency at batch 2 is 2 times that at batch 1"
    assert subtitle == "Latency vs batch size · Test CPU (cpu) · eager · float32 · text-generation · 4 new tokens"
    assert provenance == "random weights · attention=sdpa · 3 launches per point · measured 2026-01-02"


def test_lines_differ_in_colour_and_marker(make_run, figures, see):
    (figure,) = figures(LATENCY, make_run(sequence_lengths=tuple(range(8, 88, 8))))
    looks = [see.look(figure.axes[0], f"valid {length}") for length in range(8, 88, 8)]
    assert len({shape for _, shape in looks}) == len({own for own, _ in looks}) == 10


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        ({"weights": "pretrained"}, ("bert-base-uncased", "cpu", "eager", "float32")),
        ({"task": "fill-mask"}, ("bert-base-uncased", "cpu", "eager", "float32")),
        ({"revision": "abc"}, ("bert-base-uncased", "cpu", "eager", "float32")),
    ],
)
def test_results_that_differ_only_in_details_go_to_different_pictures(make_run, outcomes, alter, change, parts):
    first, second = outcomes(LATENCY, make_run(), alter.workload(make_run(), **change))
    assert first.name_parts == second.name_parts == parts
    assert first.details != second.details


def test_each_device_runtime_precision_and_number_of_new_tokens_has_its_own_picture(make_run, outcomes, alter):
    gpt2 = {"model_id": "gpt2", "family": "decoder-only"}
    longer = alter.results(make_run(**gpt2), alter.at(new_tokens=16))
    runs = [make_run(**gpt2), longer, make_run(**gpt2, device="cuda"), make_run(**gpt2, precision="bfloat16")]
    assert [drawing.name_parts for drawing in outcomes(LATENCY, *runs)] == [
        ("gpt2", "cpu", "eager", "bfloat16", "n4"),
        ("gpt2", "cpu", "eager", "float32", "n4"),
        ("gpt2", "cpu", "eager", "float32", "n16"),
        ("gpt2", "cuda", "eager", "float32", "n4"),
    ]


def test_only_the_latest_result_of_a_series_is_drawn(make_run, figures, see):
    older = make_run(started_at="2026-01-01T00:00:00Z", slowdown=2.0)
    newer = make_run(started_at="2026-03-01T00:00:00Z")
    (figure,) = figures(LATENCY, newer, older)
    assert see.points(figure.axes[0], "line 32") == [(1, 8), (2, 16)]


def test_throughput_is_in_inputs_per_second(make_run, figures, see):
    (figure,) = figures(THROUGHPUT, make_run(sequence_lengths=(32,)))
    (axes,) = figure.axes
    assert axes.get_ylabel() == "Throughput (inputs/s)\nhigher is better"
    assert see.points(axes, "line 32") == [(1, 125), (2, 125)]


def test_throughput_of_generation_counts_generated_tokens(make_run, figures, see, alter):
    run = make_run(model_id="gpt2", family="decoder-only", sequence_lengths=(32,))
    (figure,) = figures(THROUGHPUT, alter.results(run, alter.metrics(throughput_tokens_per_sec=77.0)))
    assert figure.axes[0].get_ylabel() == "Throughput (generated tokens/s)\nhigher is better"
    assert see.points(figure.axes[0], "line 32") == [(1, 77), (2, 77)]


def test_memory_on_a_cpu_is_that_of_the_process_with_the_weights_for_reference(make_run, figures, see):
    (figure,) = figures(MEMORY, make_run(batch_sizes=(1, 2, 4), sequence_lengths=(32,)))
    (axes,) = figure.axes
    assert axes.get_ylabel() == "Peak resident memory of the process (MB)\nlower is better"
    assert see.points(axes, "line 32") == [(1, 910), (2, 920), (4, 940)]
    assert list(see.artist(axes, "reference weights alone, 438 MB").get_ydata()) == [437.9, 437.9]
    assert see.legend(figure) == ["32", "weights alone, 438 MB"]
    assert see.labels(axes) == ["line 32", "reference weights alone, 438 MB", "valid 32"], (
        "no band: there is no interval of memory"
    )


def test_memory_on_an_accelerator_is_device_memory(make_run, figures, see, alter):
    run = alter.results(make_run(device="cuda"), alter.metrics(memory_device_allocated_peak_mb=512.0))
    (figure,) = figures(MEMORY, run)
    assert figure.axes[0].get_ylabel() == "Peak device memory allocated (MB)\nlower is better"
    assert see.points(figure.axes[0], "line 32") == [(1, 512), (2, 512)]


def test_points_without_a_memory_reading_are_counted(make_run, figures, outcomes, see, alter):
    bare = alter.metrics(memory_peak_rss_infer_mb=None)
    run = make_run(batch_sizes=(1, 2, 4))
    (figure,) = figures(MEMORY, alter.results(run, bare, where=lambda point: point.batch_size == 2))
    note = "Not drawn, of 6 points: 2 without this metric (batch 2, sequence 32; batch 2, sequence 128)."
    assert note in see.texts(figure)
    (outcome,) = outcomes(MEMORY, alter.results(make_run(), bare))
    assert outcome.why == "nothing to draw, of 4 points: 4 without this metric"


def test_a_model_without_sequence_lengths_has_no_legend(make_run, figures, see):
    run = make_run(model_id="vit", family="vision", axes={"image_size": (224,)})
    (figure,) = figures(LATENCY, run)
    assert figure.legends == []
    assert see.texts(figure)[1].endswith("image-classification · image 224 px")
    assert see.points(figure.axes[0], "line none") == [(1, 8), (2, 16)]


@pytest.mark.parametrize(
    ("family", "title", "entries"),
    [
        ("vision", "Image size (pixels per side)", ["224", "384"]),
        ("speech", "Audio in each input (s)", ["5", "30"]),
        ("diffusion", "Image size (pixels per side)", ["256", "512"]),
        ("multimodal", "Sequence length (tokens)", ["32", "128"]),
        ("rag", "", ["sequence 32, top-2", "sequence 32, top-8", "sequence 128, top-2", "sequence 128, top-8"]),
    ],
)
def test_lines_follow_the_axes_that_vary(make_run, figures, see, family, title, entries):
    (figure,) = figures(LATENCY, make_run(family=family))
    assert see.legend(figure) == entries
    assert figure.legends[0].get_title().get_text() == title


def test_axes_that_do_not_vary_are_in_the_subtitle(make_run, figures, see):
    (figure,) = figures(LATENCY, make_run(family="rag"))
    assert see.texts(figure)[1].endswith("retrieval-augmented-generation · 4 new tokens, 1,000 documents")
    (figure,) = figures(LATENCY, make_run(family="vision-text", sequence_lengths=(77,), axes={"image_size": (8, 16)}))
    assert see.texts(figure)[1].endswith("zero-shot-image-classification · sequence 77")
    assert see.legend(figure) == ["8", "16"]


def test_lines_are_sorted_numerically(make_run, figures, see):
    (figure,) = figures(LATENCY, make_run(family="vision", axes={"image_size": (1024, 512, 256)}))
    assert see.legend(figure) == ["256", "512", "1,024"]


def test_too_many_lines_are_split_into_several_pictures(make_run, outcomes, see):
    axes = {"image_size": (64, 128, 256, 512), "steps": (1, 2, 4)}
    first, *others = outcomes(LATENCY, make_run(family="diffusion", axes=axes))
    assert [one.name_parts[4:] for one in (first, *others)] == [("steps-1",), ("steps-2",), ("steps-4",)]
    assert see.legend(picture(first)) == ["64", "128", "256", "512"]
    assert see.texts(picture(first))[1].endswith("text-to-image · 1 step")


def test_a_failed_point_adds_no_line_and_no_picture(make_run, figures, see):
    (figure,) = figures(LATENCY, make_run(family="vision", with_failed=True))
    assert see.legend(figure) == ["224", "384"]
    assert any(
        text.startswith("Not drawn, of 5 points: 1 failed (batch 64, image 384 px)") for text in see.texts(figure)
    )


@pytest.mark.parametrize(
    ("family", "label"),
    [("vision", "images/s"), ("diffusion", "images/s"), ("vision-text", "inputs/s"), ("rag", "generated tokens/s")],
)
def test_the_throughput_axis_names_the_unit(make_run, figures, family, label):
    (figure,) = figures(THROUGHPUT, make_run(family=family))
    assert figure.axes[0].get_ylabel() == f"Throughput ({label})\nhigher is better"


def test_a_simulated_device_is_labelled(make_run, figures, see, alter):
    (figure,) = figures(LATENCY, alter.on_device(make_run(), "Emulator", simulated=True))
    assert see.texts(figure)[1].startswith("Emulator (cpu, simulated) · eager")


def test_the_title_states_growth_only_for_valid_results_of_one_command(make_run, figures, see, alter):
    def title(run):
        (figure,) = figures(LATENCY, run)
        return see.texts(figure)[0]

    plain = "Latency vs batch size: bert-base-uncased"
    assert title(make_run(batch_sizes=(1, 4))) == "bert-base-uncased: the latency at batch 4 is 4 times that at batch 1"
    assert title(alter.results(make_run(), alter.noisy)) == plain
    assert title(make_run(launches=1)) == plain
    assert title(make_run(batch_sizes=(4, 5))) == plain  # three rounds prove no difference below 50 %


def test_the_titles_of_token_charts_follow_the_judge(make_run, figures, see, alter):
    def with_token_samples(one):
        of_tokens = [
            replace(
                launch,
                metric=name,
                values=tuple(
                    value * one.metrics[f"{name}_ms"] / one.metrics["latency_median_ms"] for value in launch.values
                ),
            )
            for launch in one.samples
            for name in charts
        ]
        return replace(one, samples=(*one.samples, *of_tokens))

    charts = {
        "time_to_first_token": ("Time to first token", "the time to the first token"),
        "time_per_output_token": ("Time per output token", "the time per token"),
    }
    for sizes, ratio in (((1, 4), 4), ((4, 5), None)):
        run = make_run(model_id="gpt2", family="decoder-only", batch_sizes=sizes)
        run = alter.varied(alter.results(run, with_token_samples))
        for name, (plain, what) in charts.items():
            (figure,) = figures(name, run)
            title = f"{plain}: gpt2" if ratio is None else f"gpt2: {what} at batch 4 is 4 times that at batch 1"
            assert see.texts(figure)[0] == title


def test_forty_lengths_are_thinned_to_ten_lines_and_the_caption_counts_the_rest(make_run, figures, see, alter):
    lengths = tuple(range(16, 656, 16))
    run = alter.results(
        make_run(sequence_lengths=lengths),
        lambda one: replace(one, metrics={**one.metrics, "energy_gpu_j_per_call": 2.0 * one.point.batch_size}),
    )
    (figure,) = figures("energy_per_input", run)
    legend = see.legend(figure)
    assert (len(legend), legend[0], legend[-1]) == (10, "16", "640")
    assert see.says(figure, "Left out: 30 of 40 lines, evenly spread; narrow the selection to see them.")
    assert len(see.points(figure.axes[1], "line batch 1")) == 40
    assert see.texts(figure)[0] == "bert-base-uncased: the energy per input at batch 2 is about the same as at batch 1"
    (figure,) = figures("hardware_comparison", run, alter.renewed(alter.on_device(run, "Other")))
    shown = [axes.get_title("left") for axes in figure.axes if axes.get_visible() and axes.get_title("left")]
    assert (len(shown), shown[0], shown[-1]) == (9, "sequence\N{NO-BREAK SPACE}16", "sequence\N{NO-BREAK SPACE}640")
    assert see.says(figure, "left out: 31 of 40 panels")
