"""The comparison of models by family: a block a task, each at one point."""

from visualize.charts import NotDrawn

NAME = "architecture_comparison"


def test_models_of_a_task_are_sorted_by_family_then_latency(make_run, figures, see, alter):
    runs = [
        make_run(model_id="slow-encoder", slowdown=4.0),
        make_run(model_id="fast-encoder"),
        alter.workload(make_run(model_id="fastest", slowdown=0.5), family="state-space"),
    ]
    (figure,) = figures(NAME, *runs)
    latency, memory = figure.axes
    names = [label.get_text() for label in latency.get_yticklabels()]
    assert names == ["slow-encoder (109 M)", "fast-encoder (109 M)", "fastest (109 M)"], "from the bottom up"
    assert see.points(latency, "mark slow-encoder") == [(128, 0)]
    assert see.points(latency, "mark fast-encoder") == [(32, 1)]
    assert see.points(latency, "mark fastest") == [(16, 2)]
    assert see.points(memory, "mark fastest") == [(910, 2)]
    assert see.legend(figure) == ["encoder-only", "state-space"]
    assert latency.get_title(loc="left") == "feature-extraction: batch 1, sequence 128"


def test_whiskers_are_the_intervals(make_run, figures, see):
    (figure,) = figures(NAME, make_run(), make_run(model_id="other"))
    ((start, end),) = see.artist(figure.axes[0], "interval other").get_segments()
    assert (float(start[0]), float(end[0])) == (31.7, 32.3)
    assert see.labels(figure.axes[1]) == ["mark bert-base-uncased", "mark other"], "memory has no interval"


def test_tasks_have_blocks_of_their_own_and_a_warning(make_run, figures, see):
    (figure,) = figures(NAME, make_run(), make_run(model_id="gpt2", family="decoder-only"))
    assert [axes.get_title(loc="left") for axes in figure.axes[::2]] == [
        "feature-extraction: batch 1, sequence 128",
        "text-generation: batch 1, sequence 128, 4 new tokens",
    ]
    assert "Tasks differ in what a call does: compare inside a block." in see.texts(figure)


def test_a_block_is_at_the_point_most_models_share_and_names_the_others(make_run, figures, see):
    lengths_of = {"a": (32,), "b": (32,), "c": (512,)}
    runs = [make_run(model_id=name, sequence_lengths=lengths) for name, lengths in lengths_of.items()]
    (figure,) = figures(NAME, *runs)
    assert figure.axes[0].get_title(loc="left") == "feature-extraction: batch 1, sequence 32"
    assert "Measured, but not at the point of their block: feature-extraction: c." in see.texts(figure)


def test_of_points_as_common_the_smallest_batch_and_longest_sequence_is_taken(make_run, figures):
    runs = [make_run(model_id=name, batch_sizes=(4, 2), sequence_lengths=(64, 256)) for name in "ab"]
    (figure,) = figures(NAME, *runs)
    assert figure.axes[0].get_title(loc="left") == "feature-extraction: batch 2, sequence 256"


def test_random_and_pretrained_weights_are_never_in_one_picture(make_run, outcomes, alter):
    pretrained = [alter.workload(make_run(model_id=name), weights="pretrained") for name in "ab"]
    drawings = outcomes(NAME, *pretrained, make_run(model_id="a"), make_run(model_id="b"))
    assert [drawing.named_by for drawing in drawings] == [
        ("cpu", "eager", "float32", "pretrained"),
        ("cpu", "eager", "float32", "random"),
    ]


def test_one_model_is_nothing_to_compare(make_run, outcomes):
    (outcome,) = outcomes(NAME, make_run())
    what = "Models by architecture family on Test CPU (cpu) · eager · float32, random weights"
    assert outcome == NotDrawn(what=what, why="bert-base-uncased is the only model measured there")


def test_doubtful_is_hollow_and_failed_is_named(make_run, figures, see, alter):
    doubtful = alter.results(make_run(model_id="doubtful"), alter.noisy)
    broken = alter.results(make_run(model_id="broken"), alter.failed)
    (figure,) = figures(NAME, make_run(), doubtful, broken)
    assert see.artist(figure.axes[0], "mark doubtful").get_markerfacecolor() == "white"
    assert see.legend(figure) == ["encoder-only", "hollow: doubtful"]
    (note,) = [text for text in see.texts(figure) if text.startswith("Not drawn")]
    assert note.startswith("Not drawn: 4 failed of 6 points (broken at batch 1, sequence 32; broken at")


def test_two_modes_of_one_model_are_told_apart(make_run, figures, alter):
    other = make_run(model_id="other", slowdown=3.0)
    (figure,) = figures(NAME, make_run(), alter.mode(make_run(slowdown=2.0), attention="eager"), other)
    names = [label.get_text().replace("\n", " ") for label in figure.axes[0].get_yticklabels()]
    assert names[:1] == ["other (109 M)"]
    assert names[1:] == ["bert-base-uncased (109 M), attention=eager", "bert-base-uncased (109 M), attention=sdpa"]


def test_without_memory_readings_there_is_only_latency(make_run, figures, alter):
    bare = alter.metrics(memory_peak_rss_infer_mb=None)
    (figure,) = figures(NAME, *(alter.results(make_run(model_id=name), bare) for name in "ab"))
    assert [axes.get_xlabel() for axes in figure.axes] == ["Latency per call, median (ms)"]
