"""The comparison of models by architecture family: one block per task, each at one point."""

import itertools

import pytest

from benchmarking.core.plugins import family_names
from visualize.drawing.figure import NotDrawn

NAME = "architecture_comparison"


def test_models_of_a_task_are_sorted_by_family_then_latency(make_run, figures, see, alter):
    runs = [
        make_run(model_id="slow-encoder", slowdown=4.0),
        make_run(model_id="fast-encoder"),
        alter.workload(make_run(model_id="fastest", slowdown=0.5), family="state-space"),
    ]
    (figure,) = figures(NAME, *runs)
    latency, memory = figure.axes
    names = [label.get_text().replace("\N{NO-BREAK SPACE}", " ") for label in latency.get_yticklabels()]
    assert names == ["slow-encoder (109 M)", "fast-encoder (109 M)", "fastest (109 M)"], "from the bottom up"
    assert see.points(latency, "valid slow-encoder") == [(128, 0)]
    assert see.points(latency, "valid fast-encoder") == [(32, 1)]
    assert see.points(latency, "valid fastest") == [(16, 2)]
    assert see.points(memory, "valid fastest") == [(910, 2)]
    assert see.legend(figure) == ["encoder-only", "state-space"]
    assert see.title(latency, loc="left") == "feature-extraction: batch 1, sequence 128"


def test_a_long_name_makes_no_tower_and_labels_of_an_axis_do_not_overlap(make_run, figures, alter):
    long = f"{'x' * 180}/{'y' * 60}"
    (figure,) = figures(
        NAME, make_run(), make_run(model_id=long), make_run(model_id="hours", slowdown=1e6, family="rag")
    )
    assert figure.get_size_inches()[1] < 8
    figure.canvas.draw()
    names = [label.get_text().replace("\n", "") for label in figure.axes[0].get_yticklabels()]
    assert any("…yyy" in name for name in names)
    for axes in figure.axes:
        boxes = [label.get_window_extent() for label in axes.get_xticklabels() if label.get_text()]
        assert all(left.x1 < right.x0 for left, right in itertools.pairwise(boxes))


def test_whiskers_are_intervals(make_run, figures, see):
    (figure,) = figures(NAME, make_run(), make_run(model_id="other"))
    start, end = see.points(figure.axes[0], "interval other")
    assert (float(start[0]), float(end[0])) == (31.7, 32.3)
    assert see.labels(figure.axes[1]) == ["valid bert-base-uncased", "valid other"], "memory has no interval"


def test_tasks_have_separate_blocks_and_a_warning(make_run, figures, see):
    (figure,) = figures(NAME, make_run(), make_run(model_id="gpt2", family="decoder-only"))
    assert [see.title(axes, loc="left") for axes in figure.axes[::2]] == [
        "encoder-only, feature-extraction: batch 1, sequence 128",
        "decoder-only, text-generation: batch 1, sequence 128, 4 new tokens",
    ]
    assert see.says(figure, "Tasks do different work per call: compare only within a block.")


def test_a_block_shows_the_point_that_most_models_share_and_names_other_models(make_run, figures, see):
    lengths_of = {"a": (32,), "b": (32,), "c": (512,)}
    runs = [make_run(model_id=name, sequence_lengths=lengths) for name, lengths in lengths_of.items()]
    (figure,) = figures(NAME, *runs)
    assert see.title(figure.axes[0], loc="left") == "encoder-only, feature-extraction: batch 1, sequence 32"
    assert see.says(figure, "Measured only at other points: feature-extraction: c.")


def test_ties_between_points_go_to_the_smallest_batch_and_longest_sequence(make_run, figures, see):
    runs = [make_run(model_id=name, batch_sizes=(4, 2), sequence_lengths=(64, 256)) for name in "ab"]
    (figure,) = figures(NAME, *runs)
    assert see.title(figure.axes[0], loc="left") == "encoder-only, feature-extraction: batch 2, sequence 256"


@pytest.fixture
def one_of_each(make_run, alter):
    """A model of every family with different latencies; the mixture of experts has another sequence length."""
    lengths = {"mixture-of-experts": (64,)}
    return [
        make_run(model_id=f"a-{family}", family=family, slowdown=1.0 + 7 * place, sequence_lengths=lengths.get(family))
        for place, family in enumerate(family_names())
    ]


def test_one_picture_shows_every_family_at_a_measured_point(one_of_each, figures, see):
    (figure,) = figures(NAME, *one_of_each)
    assert see.legend(figure) == list(family_names())
    headings = [see.title(axes, loc="left") for axes in figure.axes[::2]]
    assert headings == [
        "encoder-only, feature-extraction: batch 1, sequence 128",
        "text-generation: batch 1, sequence 128, 4 new tokens",
        "encoder-decoder, text2text-generation: batch 1, sequence 128, 4 new tokens",
        "vision, image-classification: batch 1, image 224 px",
        "vision-text, zero-shot-image-classification: batch 1, sequence 128, image 224 px",
        "speech, automatic-speech-recognition: batch 1, 4 new tokens, 5 s of audio",
        "multimodal, image-text-to-text: batch 1, sequence 128, 4 new tokens, image 336 px",
        "diffusion, text-to-image: batch 1, image 256 px, 4 steps",
        "mixture-of-experts, text-generation: batch 1, sequence 64, 4 new tokens",
        "rag, retrieval-augmented-generation: batch 1, sequence 128, 4 new tokens, 1,000 documents, top-2",
    ]
    assert figure.axes[0].get_xscale() == "log"
    assert see.says(figure, "Each block shows the point that most of its models share")


def test_each_family_has_its_own_look_in_every_picture(one_of_each, figures, see):
    def look(figure, family):
        (panel,) = [axes for axes in figure.axes[::2] if f"valid a-{family}" in see.labels(axes)]
        return see.look(panel, f"valid a-{family}")

    (all_of_them,) = figures(NAME, *one_of_each)
    looks = {family: look(all_of_them, family) for family in family_names()}
    assert len(set(looks.values())) == len(family_names())
    (two,) = figures(NAME, one_of_each[3], one_of_each[9])
    assert {family: look(two, family) for family in ("vision", "state-space")} == {
        family: looks[family] for family in ("vision", "state-space")
    }


def test_a_module_without_a_family_is_labelled(make_run, figures, see, alter):
    (figure,) = figures(NAME, make_run(), alter.workload(make_run(model_id="mine"), family=None))
    assert see.legend(figure) == ["encoder-only", "no family"]


def test_without_any_family_none_is_named(make_run, figures, see, alter):
    mine = [alter.workload(make_run(model_id=name), family=None) for name in ("mine", "yours")]
    (figure,) = figures(NAME, *mine)
    assert figure.legends == []
    assert see.texts(figure)[0] == "Latency by model"
    assert see.title(figure.axes[0], loc="left") == "feature-extraction: batch 1, sequence 128"


def test_a_model_that_shares_no_point_is_not_compared(make_run, outcomes):
    (outcome,) = outcomes(NAME, make_run(), make_run(model_id="other", sequence_lengths=(77,)))
    assert isinstance(outcome, NotDrawn)
    assert outcome.why == "2 models, but no two share a point"


def test_random_and_pretrained_weights_never_share_a_picture(make_run, outcomes, alter):
    pretrained = [alter.workload(make_run(model_id=name), weights="pretrained") for name in "ab"]
    drawings = outcomes(NAME, *pretrained, make_run(model_id="a"), make_run(model_id="b"))
    assert [drawing.name_parts for drawing in drawings] == [
        ("cpu", "eager", "float32", "pretrained"),
        ("cpu", "eager", "float32", "random"),
    ]


def test_a_single_model_is_not_compared(make_run, outcomes):
    (outcome,) = outcomes(NAME, make_run())
    what = "Models by architecture family on Test CPU (cpu) · eager · float32, random weights"
    assert outcome == NotDrawn(what=what, why="bert-base-uncased is the only model")


def test_doubtful_results_are_hollow_and_failed_results_are_named(make_run, figures, see, alter):
    doubtful = alter.results(make_run(model_id="doubtful"), alter.noisy)
    broken = alter.results(make_run(model_id="broken"), alter.failed)
    (figure,) = figures(NAME, make_run(), doubtful, broken)
    assert see.face(figure.axes[0], "doubtful doubtful") == "#ffffff"
    assert see.legend(figure) == ["encoder-only", "hollow: doubtful"]
    assert see.says(figure, "Not drawn, of 6 points: 4 failed (broken at batch 1, sequence 32; broken at")


def test_labels_distinguish_two_modes_of_a_model(make_run, figures, alter):
    other = make_run(model_id="other", slowdown=3.0)
    (figure,) = figures(NAME, make_run(), alter.mode(make_run(slowdown=2.0), attention="eager"), other)
    names = [
        label.get_text().replace("\n", " ").replace("\N{NO-BREAK SPACE}", " ")
        for label in figure.axes[0].get_yticklabels()
    ]
    assert names[:1] == ["other (109 M)"]
    assert names[1:] == ["bert-base-uncased (109 M), attention=eager", "bert-base-uncased (109 M), attention=sdpa"]


def test_only_latency_is_drawn_without_memory_readings(make_run, figures, alter):
    bare = alter.metrics(memory_peak_rss_infer_mb=None)
    (figure,) = figures(NAME, *(alter.results(make_run(model_id=name), bare) for name in "ab"))
    assert [axes.get_xlabel() for axes in figure.axes] == ["Latency per call, median (ms)\nlower is better"]
