"""The order of a grid, and its validation before anything runs."""

from __future__ import annotations

import pytest

from benchmarking.core.errors import UsageError
from benchmarking.core.records import Point
from benchmarking.sweep.plan.plan import check_points, grid, work


def test_the_grid_has_every_combination_with_the_least_work_first():
    points = grid({"batch_size": (1, 4), "sequence_length": (32, 128)})
    assert [point.label for point in points] == ["b1 s32", "b1 s128", "b4 s32", "b4 s128"]


def test_new_tokens_count_as_work():
    points = grid({"batch_size": (1,), "sequence_length": (32, 40), "new_tokens": (1, 16)})
    assert [point.label for point in points] == ["b1 s32 n1", "b1 s40 n1", "b1 s32 n16", "b1 s40 n16"]


def test_further_axes_are_in_the_points_and_count_as_work():
    points = grid({"batch_size": (1, 2), "image_size": (224, 384)})
    assert [point.label for point in points] == [
        "b1 image_size=224",
        "b2 image_size=224",
        "b1 image_size=384",  # 384 x 384 pixels are more than twice 224 x 224
        "b2 image_size=384",
    ]
    assert points[0].axes == {"image_size": 224}


def test_values_of_zero_and_below_of_a_benchmark_s_own_axis_say_nothing_about_the_work():
    plain = work(Point(batch_size=2))
    assert [work(Point(batch_size=2, axes={"offset": value})) for value in (0, -3, 4)] == [plain, plain, 4 * plain]


def test_audio_may_have_fractions_of_a_second():
    assert [point.label for point in grid({"batch_size": (1,), "audio_seconds": (2.5, 30)})] == [
        "b1 audio_seconds=2.5",
        "b1 audio_seconds=30",
    ]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("image_size", 0, "image_size takes whole numbers from 1 to 2147483647: got 0"),
        ("image_size", 1.5, "image_size takes whole numbers from 1 to 2147483647: got 1.5"),
        ("image_size", float("inf"), "image_size takes whole numbers from 1 to 2147483647: got inf"),
        ("batch_size", 2**31, "batch_size takes whole numbers from 1 to 2147483647: got 2147483648"),
        ("audio_seconds", 0, "audio_seconds takes numbers above 0: got 0"),
        ("audio_seconds", float("inf"), "audio_seconds takes numbers above 0: got inf"),
        ("steps", "two", "steps takes numbers: got 'two'"),
        ("batch_size", True, "batch_size takes numbers: got True"),
    ],
)
def test_invalid_axis_values_are_errors(name, value, message):
    with pytest.raises(UsageError, match=message):
        grid({"batch_size": (1,), name: (value,)})


def too_long(point: Point) -> str | None:
    return f"{point.sequence_length} tokens are too long" if (point.sequence_length or 0) > 64 else None


def test_an_unsupported_point_is_an_error():
    points = grid({"batch_size": (1,), "sequence_length": (32, 128, 256)})
    with pytest.raises(UsageError) as error:
        check_points(points, too_long, skip_unsupported=False)
    said = "point b1 s128: 128 tokens are too long (and 1 more such points)"
    assert str(error.value) == f"{said}; use --skip-unsupported to skip such points"
    with pytest.raises(UsageError) as error:  # of a command without the flag
        check_points(points, too_long, skip_unsupported=None)
    assert str(error.value) == said


def test_unsupported_points_can_be_skipped():
    points = grid({"batch_size": (1,), "sequence_length": (32, 128)})
    assert check_points(points, too_long, skip_unsupported=True) == {"b1 s128": "128 tokens are too long"}


def test_a_grid_without_supported_points_is_an_error():
    points = grid({"batch_size": (1,), "sequence_length": (128,)})
    with pytest.raises(UsageError, match="no supported point to measure"):
        check_points(points, too_long, skip_unsupported=True)
