"""The comparison of hardware at shared points."""

from dataclasses import replace

import pytest

from benchmarking.core.records import Origin
from visualize.drawing.figure import NotDrawn

NAME = "hardware_comparison"


def also_elsewhere(run, alter):
    """The run, and the same on another device."""
    return run, alter.renewed(alter.on_device(run, "Other"))


def test_there_is_one_panel_per_sequence_length_and_one_line_per_configuration(make_run, figures, see, alter):
    fast = alter.on_device(make_run(slowdown=0.5), "Fast Card", "cuda:0")
    (figure,) = figures(NAME, make_run(), fast)
    assert [see.title(axes) for axes in figure.axes] == ["sequence 32", "sequence 128"]
    assert see.legend(figure) == ["Fast Card (cuda:0) · eager · float32", "Test CPU (cpu) · eager · float32"]
    left, right = figure.axes
    assert see.points(left, "line Fast Card (cuda:0) · eager · float32") == [(1, 4), (2, 8)]
    assert see.points(left, "line Test CPU (cpu) · eager · float32") == [(1, 8), (2, 16)]
    assert see.points(right, "line Test CPU (cpu) · eager · float32") == [(1, 32), (2, 64)]
    assert left.get_ylim() == right.get_ylim()


def test_only_shared_points_are_compared(make_run, figures, see, alter):
    other = alter.on_device(make_run(batch_sizes=(1, 64), sequence_lengths=(32, 512)), "Other")
    (figure,) = figures(NAME, make_run(batch_sizes=(1, 2), sequence_lengths=(32, 128)), other)
    (axes,) = figure.axes
    assert see.title(axes) == "sequence 32"
    assert see.points(axes, "line Other (cpu) · eager · float32") == [(1, 8)]
    note = "Not drawn, of 8 points: 6 measured on a single configuration"
    assert see.says(figure, note)


def test_configurations_without_a_shared_point_are_not_compared(make_run, outcomes, alter):
    other = alter.on_device(make_run(sequence_lengths=(512,)), "Other")
    (outcome,) = outcomes(NAME, make_run(sequence_lengths=(32,)), other)
    why = "2 configurations, but no two share a point"
    assert outcome == NotDrawn(what="Latency by hardware: bert-base-uncased", why=why)


def test_a_single_configuration_is_not_compared(make_run, outcomes):
    (outcome,) = outcomes(NAME, make_run())
    why = "measured only on Test CPU (cpu) · eager · float32, so there is no comparison"
    assert (outcome.what, outcome.why) == ("Latency by hardware: bert-base-uncased", why)
    assert "Only one configuration has results, so there is no comparison." in outcome.alone.notes


@pytest.mark.parametrize("change", [{"weights": "pretrained"}, {"task": "fill-mask"}, {"config_hash": "0" * 64}])
def test_different_weights_tasks_and_model_configurations_never_share_a_picture(make_run, figures, alter, change):
    changed = alter.workload(make_run(), **change)
    assert len(figures(NAME, *also_elsewhere(make_run(), alter), *also_elsewhere(changed, alter))) == 2


def test_numbers_of_two_definitions_are_never_compared(make_run, outcomes, alter):
    origin = Origin(format="pyperf", definition="pyperf")
    found = outcomes(NAME, make_run(), replace(alter.on_device(make_run(slowdown=0.3), "Other"), origin=origin))
    assert [isinstance(one, NotDrawn) and "no comparison" in one.why for one in found] == [True, True]


def test_numbers_of_new_tokens_and_requests_in_flight_have_separate_panels(make_run, figures, see, alter):
    run = make_run(model_id="gpt2", family="decoder-only", sequence_lengths=(32,))
    runs = [run, alter.results(run, alter.at(new_tokens=64)), alter.results(run, alter.at(concurrency=8))]
    runs += [alter.on_device(one, "Other") for one in runs]
    (figure,) = figures(NAME, *(alter.renewed(one) for one in runs))
    assert [see.title(axes) for axes in figure.axes] == [
        "sequence 32, 4 new tokens",
        "sequence 32, 4 new tokens, 8 requests in flight",
        "sequence 32, 64 new tokens",
    ]


def test_panels_of_image_sizes_are_sorted(make_run, figures, see, alter):
    run, other = (make_run(model_id="vit", family="vision", axes={"image_size": (1024, 224)}) for _ in range(2))
    (figure,) = figures(NAME, run, alter.on_device(other, "Other"))
    assert [see.title(axes) for axes in figure.axes] == ["image 224 px", "image 1,024 px"]
    rag = make_run(model_id="rag", family="rag", sequence_lengths=(32,))
    (figure,) = figures(NAME, *also_elsewhere(rag, alter))
    assert [see.title(axes) for axes in figure.axes] == [
        "sequence 32, 4 new tokens, 1,000 documents, top-2",
        "sequence 32, 4 new tokens, 1,000 documents, top-8",
    ]


def test_invalid_results_are_counted_but_not_drawn(make_run, figures, see, alter):
    run = alter.results(make_run(sequence_lengths=(32,)), alter.invalid, where=lambda point: point.batch_size == 2)
    (figure,) = figures(NAME, *also_elsewhere(run, alter))
    assert see.points(figure.axes[0], "line Test CPU (cpu) · eager · float32") == [(1, 8)]
    assert see.says(figure, "Not drawn, of 4 points: 2 invalid")


def test_a_valid_result_takes_precedence_over_a_newer_doubtful_result(make_run, figures, see, alter):
    newer = make_run(slowdown=3.0, started_at="2026-05-01T00:00:00Z")
    (figure,) = figures(NAME, *also_elsewhere(make_run(), alter), alter.results(newer, alter.noisy))
    assert see.points(figure.axes[0], "line Test CPU (cpu) · eager · float32") == [(1, 8), (2, 16)]


def test_configurations_with_equal_names_are_distinguished_by_their_settings(make_run, figures, see, alter):
    eager = alter.mode(make_run(), attention="eager")
    (figure,) = figures(NAME, make_run(), eager)
    name = "Test CPU (cpu) · eager · float32"
    assert see.legend(figure) == [f"{name} · attention=eager", f"{name} · attention=sdpa"]


def test_an_incomplete_last_row_has_no_empty_panel_and_no_unlabelled_axis(make_run, figures, alter):
    (figure,) = figures(NAME, *also_elsewhere(make_run(sequence_lengths=(8, 16, 32, 64, 128)), alter))
    figure.draw_without_rendering()
    assert len(figure.axes) == 5
    labelled = [any(label.get_visible() for label in axes.get_xticklabels()) for axes in figure.axes]
    assert labelled == [False, False, True, True, True]
    assert [axes.get_xlabel() != "" for axes in figure.axes] == labelled
    assert [axes.xaxis.label.get_visible() for axes in figure.axes if axes.get_xlabel()] == [True] * 3
