"""Charts of stored profiles: the flame graph and layer times."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarking.core.codec import dumps
from benchmarking.core.profiles import KINDS, OTHER, ModuleTime
from db.run_records import TABLES
from tests.helpers.records import make_profile
from visualize.charts import profiles
from visualize.drawing.figure import NotDrawn
from visualize.drawing.picture import picture
from visualize.drawing.rows import Selection, charts
from visualize.drawing.style import THEMES, chosen, paint
from visualize.visualize_benchmarks import main


@pytest.fixture
def drawn_of(shared_warehouse):
    """Rows and outcomes of a chart of the given profiles."""

    def draw(name, *given, **selection):
        for table in TABLES:
            shared_warehouse.query(f"DELETE FROM {table}")
        for profile in given:
            shared_warehouse.ingest_profile(profile)
        chart = charts()[name]
        rows = chart.rows(shared_warehouse, Selection(**selection))
        return rows, list(chart.draw(rows))

    yield draw
    for table in TABLES:
        shared_warehouse.query(f"DELETE FROM {table}")


def nested():
    """A model of 10 ms: 4 ms in a layer, 3 ms in its attention, 1 ms of its own, and 2 ms outside."""
    module = {"calls": 1.0, "inclusive_ms": 1.0}
    modules = (
        ModuleTime(module="Own", class_name="Own", kind="other", exclusive_ms=1.0, **module),
        ModuleTime(module="h.0", class_name="Block", kind="other", layer="h.0", exclusive_ms=4.0, **module),
        ModuleTime(module="h.0.attn", class_name="Attn", kind="attention", layer="h.0", exclusive_ms=3.0, **module),
        ModuleTime(module="", kind="other", exclusive_ms=2.0, **module),
    )
    profile = make_profile()
    (first, *_) = profile.call.breakdown.operators
    operators = (replace(first, module="h.0.attn", exclusive_ms=2.5, inclusive_ms=2.5),)
    breakdown = replace(profile.call.breakdown, host_ms=10.0, modules=modules, operators=operators)
    return replace(profile, call=replace(profile.call, breakdown=breakdown))


@pytest.mark.parametrize("theme", THEMES)
def test_no_part_of_a_model_has_nearly_the_grey_of_other_parts(theme):
    def light(kind):
        return [int(paint(profiles._fill(kind))[at : at + 2], 16) for at in (1, 3, 5)]

    with chosen(theme):
        assert min(math.dist(light(kind), light(OTHER)) for kind in KINDS if kind != OTHER) > 80


def test_flame_graph_blocks_are_nested_and_as_wide_as_their_total_time(drawn_of, see):
    ((row,), (drawing,)) = drawn_of("flame_graph", nested())
    found = {one.name: (one.depth, round(one.begin, 6), round(one.share, 6)) for one in profiles.flame(row)}
    assert found == {
        "the call": (0, 0.0, 1.0),
        "Own": (1, 0.0, 0.8),
        "h.0": (2, 0.0, 0.7),
        "h.0.attn": (3, 0.0, 0.3),
        "aten::addmm": (4, 0.0, 0.25),
    }
    (axes,) = picture(drawing).axes
    assert {bar.get_label().removeprefix("_") for bar in axes.patches} == set(found)
    texts = see.texts(picture(drawing))
    assert texts[0] == "bert-base-uncased: attention takes 30% of a call"
    assert any("under torch.profiler" in text for text in texts)


def test_the_layer_chart_title_names_the_slowest_layer(drawn_of, see):
    ((row,), (drawing,)) = drawn_of("layer_times", make_profile(4.0))
    assert see.texts(picture(drawing))[0] == "bert-base-uncased: layer layers.1 takes 4 times as long as layers.0"
    (axes,) = picture(drawing).axes
    assert [text.get_text() for text in axes.get_yticklabels()] == ["layers.0", "layers.1", "outside layers"]
    assert [text.get_text() for text in axes.texts] == ["1 ms", "4 ms", "1 ms"]
    assert profiles.layers_title({**row, "modules": row["modules"][:1]}).endswith("layer layers.0 takes 1 ms of a call")
    _, (alike,) = drawn_of("layer_times", make_profile())
    assert see.texts(picture(alike))[0] == "bert-base-uncased: 2 layers take about the same time, 1 ms each"
    _, (unlike,) = drawn_of("layer_times", make_profile(1.4))  # 1.17 times the median of the two
    assert see.texts(picture(unlike))[0] == "bert-base-uncased: 2 layers take 1 to 1.4 ms each"


def test_the_newest_profile_of_a_series_is_drawn_if_it_has_layers(drawn_of):
    older, newer = make_profile(2.0), make_profile(3.0)
    newer = replace(
        newer, run=replace(newer.run, started_at="2027-01-02T03:04:05Z", finished_at="2027-01-02T03:04:06Z")
    )
    rows, _ = drawn_of("layer_times", newer, older)
    assert [row["profile_id"] for row in rows] == [newer.profile_id]
    rows, _ = drawn_of("layer_times", newer, older, profiles=(older.profile_id,))
    assert [row["profile_id"] for row in rows] == [older.profile_id]
    assert drawn_of("layer_times", newer, runtime="openvino") == ([], [])
    whole = replace(older.call.breakdown, modules=older.call.breakdown.modules[-1:])
    _, (outcome,) = drawn_of("layer_times", replace(older, call=replace(older.call, breakdown=whole)))
    assert isinstance(outcome, NotDrawn)
    assert "has no layers" in outcome.why


def test_the_command_draws_a_profile_file_in_the_dark_theme(tmp_path, capsys):
    (tmp_path / "profiling_results_a.json").write_text(dumps(make_profile(4.0)))
    flags = ["--json-path", str(tmp_path), "--theme", "dark", "--format", "svg", "--output-dir", str(tmp_path / "p")]
    assert main(["model=bert-base-uncased", *flags, "--chart", "flame_graph,layer_times"]) == 0
    flame, layers = map(str.strip, capsys.readouterr().out.splitlines())
    assert "layers.1 takes 4 times" in Path(layers).read_text()
    assert "attention takes 83% of a call" in Path(flame).read_text()
