"""Small parts: grouping, telling apart, captions, file names."""

from datetime import datetime

import pytest

from benchmarking.core.axes import AXES
from benchmarking.errors import StorageError
from visualize import files
from visualize.drawing import words
from visualize.drawing.rows import detail, distinct_names, grouped, varying


def row(**columns):
    base = {
        "model_id": "m",
        "device": "cpu",
        "device_name": "CPU",
        "simulated": False,
        "runtime": "eager",
        "runtime_mode": '{"attention":"sdpa"}',
        "precision": "float32",
        "batch_size": 4,
        "sequence_length": 128,
        "new_tokens": None,
        "concurrency": 1,
        "axes": "{}",
        "status": "ok",
        "validity": "valid",
        "doubts": [],
        "error": None,
        "launches": 3,
        "weights": "random",
        "ci_scope": "between",
        "low": 1.0,
        "started_at": datetime(2026, 1, 2),
    }
    return {**base, **columns}


def picture(*name_parts, apart=()):
    return files.Picture(name_parts=name_parts, details=apart, images=())


def test_groups_are_sorted_by_numbers_as_numbers_and_none_first():
    rows = [{"n": 16}, {"n": 4}, {"n": None}, {"n": 4}]
    assert [(key["n"], len(members)) for key, members in grouped(rows, ("n",))] == [(None, 1), (4, 2), (16, 1)]


def test_names_that_differ_stay_as_they_are():
    assert distinct_names(["a", "b"], [["x"], ["y"]], "_") == ["a", "b"]


def test_equal_names_get_the_first_facts_that_tell_them_apart():
    facts = [["same", "red", "1"], ["same", "blue", "2"]]
    assert distinct_names(["a", "a"], facts, "_") == ["a_red", "a_blue"]


def test_equal_names_get_more_facts_where_one_is_not_enough():
    facts = [["red", "1"], ["red", "2"], ["blue", "1"]]
    assert distinct_names(["a", "a", "a"], facts, "_") == ["a_red_1", "a_red_2", "a_blue_1"]


def test_names_that_nothing_tells_apart_are_numbered():
    assert distinct_names(["a", "a"], [["x"], ["x"]], "_") == ["a", "a_2"]


def test_a_number_never_makes_a_name_that_is_taken():
    assert len(set(distinct_names(["a", "a", "a_2"], [[], [], []], "_"))) == 3


@pytest.mark.parametrize(
    ("column", "value", "words_of_it"),
    [
        ("runtime_mode", '{"cache":"static","attention":"sdpa"}', "attention=sdpa, cache=static"),
        ("num_threads", 4, "4 threads"),
        ("num_threads", None, "default threads"),
        ("hardware_id", "0123456789abcdef", "hardware 01234567"),
        ("model_revision", None, "no revision"),
        ("model_revision", "f00dfeed99", "revision f00dfeed"),
        ("simulated", True, "simulated"),
        ("simulated", False, ""),
        ("device_name", None, ""),
        ("metric_definition", 2, "metrics 2"),
    ],
)
def test_details_are_worded(column, value, words_of_it):
    assert detail(column, value) == words_of_it


@pytest.mark.parametrize(
    ("columns", "words_of_it"),
    [
        ({}, "batch 4, sequence 128"),
        ({"new_tokens": 16, "concurrency": 2}, "batch 4, sequence 128, 16 new tokens, 2 requests in flight"),
        ({"sequence_length": None, "axes": '{"steps":20,"image_size":64}'}, "batch 4, image 64 px, 20 steps"),
    ],
)
def test_points_are_worded(columns, words_of_it):
    assert words.point(row(**columns)) == words_of_it


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("sequence_length", 2048, "sequence 2,048"),
        ("audio_seconds", 7.5, "7.5 s of audio"),
        ("audio_seconds", 30.0, "30 s of audio"),
        ("documents", 100_000, "100,000 documents"),
        ("documents", 1, "1 document"),
        ("top_k", 8, "top-8"),
        ("top_k", None, "no top k"),
        ("guidance", 7.5, "guidance=7.5"),
    ],
)
def test_values_on_axes_are_worded_with_their_units(name, value, text):
    assert words.axis(name, value) == text


def test_every_axis_has_words_of_its_own():
    spoken = [words.axis(name, 2) for name in AXES]
    assert len({*spoken, *map(words.axis_title, AXES)}) == 2 * len(AXES)
    assert not any("=" in text for text in spoken)


def test_lines_end_after_commas_only():
    assert words.unbroken("a task: batch 1, image 224 px") == "a\xa0task: batch\xa01, image\xa0224\xa0px"


def test_axes_that_vary_are_named_in_their_order():
    axes = ['{"image_size":224,"steps":4}', '{"image_size":224,"steps":8}', '{"image_size":512,"zeal":1}']
    rows = [row(sequence_length=None, axes=text) for text in axes]
    assert varying(rows[:1]) == ()
    assert varying(rows[:2]) == ("steps",)
    assert varying(rows) == ("image_size", "steps", "zeal")
    assert varying([row(sequence_length=1), row(sequence_length=2)]) == ("sequence_length",)


def test_a_device_without_a_name_is_called_by_its_selector():
    assert words.device(row(device_name=None)) == "cpu"


@pytest.mark.parametrize(
    ("count", "text"),
    [(12, "12"), (60_506_624, "60.5 M"), (109_482_240, "109 M"), (1_300_000_000, "1.3 B"), (1200, "1.2 k")],
)
def test_sizes_are_worded(count, text):
    assert words.size(count) == text


def test_launches_and_dates_that_differ_are_given_as_ranges():
    rows = [row(launches=1), row(launches=5, started_at=datetime(2026, 3, 4), runtime_mode="{}")]
    assert words.provenance(rows) == "random weights · 1 to 5 launches a point · measured 2026-01-02 to 2026-03-04"
    assert words.provenance([row(launches=1)]).split(" · ")[2] == "1 launch a point"


def test_intervals_of_both_scopes_are_both_explained():
    text = words.interval([row(), row(ci_scope="within")])
    assert text.startswith(
        "Band or whisker: 95 % confidence interval of the median latency over launches; where there are fewer"
    )


def test_long_errors_are_cut_to_their_first_line():
    assert words.shortened("first\nsecond") == "first"
    assert words.shortened("x" * 200) == "x" * 157 + "..."


def test_absences_name_three_points_and_count_all():
    lost = [row(status="timed_out", batch_size=size, error="too slow") for size in (1, 2, 3, 4)]
    assert words.missing_points([*lost, row()], []) == (
        "Not drawn: 4 timed out, 1 without this measure of 5 points (batch 1, sequence 128; batch 2, sequence 128; "
        "batch 3, sequence 128 and others): too slow"
    )


@pytest.mark.parametrize(
    ("part", "name"),
    [
        ("google/flan-t5-base", "google--flan-t5-base"),
        ("cuda:0", "cuda-0"),
        ("../../etc/passwd", "etc--passwd"),
        ("Intel(R) Xeon(R) @ 2.20GHz", "Intel-R-Xeon-R-2.20GHz"),
        ("...", "-"),
        ("模型", "-"),
    ],
)
def test_parts_of_file_names_are_safe(part, name):
    assert files.safe(part) == name


def test_pictures_of_one_name_get_files_of_their_own():
    alike = [picture("m", apart=("random", "T4")), picture("m", apart=("random", "H200")), picture("n", apart=("", ""))]
    assert files.stems("chart", alike) == ["chart_m_T4", "chart_m_H200", "chart_n"]


def test_names_that_differ_in_case_or_in_unsafe_letters_only_get_files_of_their_own():
    stems = files.stems("chart", [picture("GPT2"), picture("gpt2"), picture("a/b"), picture("a--b")])
    assert len({stem.lower() for stem in stems}) == 4


def test_long_names_are_shortened_and_stay_different():
    stems = files.stems("chart", [picture("x" * 300 + "a"), picture("x" * 300 + "b")])
    assert [len(stem) for stem in stems] == [files.LONGEST_STEM] * 2
    assert stems[0] != stems[1]


def test_a_folder_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(StorageError, match="taken"):
        files.writable_folder(tmp_path / "taken")


def test_a_picture_that_cannot_be_written_is_an_error_with_its_reason(tmp_path):
    (tmp_path / "chart_m.png").mkdir()
    one = files.Picture(name_parts=("m",), details=(), images=(("png", b"x"),))
    with pytest.raises(StorageError, match=r"cannot write .*chart_m\.png"):
        files.write("chart", [one], tmp_path)
