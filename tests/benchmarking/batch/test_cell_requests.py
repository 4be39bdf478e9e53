"""From models and settings to cells: precedence of settings, and the grid of each cell."""

from __future__ import annotations

from benchmarking.batch.cell_plans import cell_requests
from benchmarking.batch.model_list import Entry


def requests(entry, **flags):
    return [request for ask in cell_requests([entry], flags, ("batch_benchmark",)) for request in ask.requests]


def entry(shared_settings=None, model_settings=None):
    return Entry(
        model_id="m",
        location="models.yaml:2",
        shared_settings=shared_settings or {},
        model_settings=model_settings or {},
    )


def test_defaults_equal_those_of_the_single_command():
    (request,) = requests(entry())
    assert (request.device, request.runtime, request.precision, request.batch_sizes) == (
        "auto",
        None,
        "float32",
        (1, 2, 4, 8),
    )
    assert (request.settings.profile, request.weights, request.timeout_s) == ("quick", "auto", 600.0)


def test_narrower_settings_override_broader_ones_and_flags_override_all():
    shared_settings, model_settings = (
        {"launches": 2, "batch_sizes": (1,), "weights": "random"},
        {"launches": 3, "batch_sizes": (2,)},
    )
    (request,) = requests(entry(shared_settings, model_settings), batch_sizes=(4,))
    assert (request.settings.launches, request.batch_sizes, request.weights) == (3, (4,), "random")


def test_runtime_options_are_passed_to_the_request():
    (request,) = requests(entry({"attention": "sdpa"}, {"cache": "static"}), attention="eager")
    assert request.options == {"attention": "eager", "cache": "static"}


def test_cells_are_the_product_of_devices_runtimes_and_precisions():
    found = requests(entry({"devices": ("cpu", "null")}), precisions=("float32", "float16"), runtimes=("a", "b"))
    cells = [(request.device, request.runtime, request.precision) for request in found]
    assert len(set(cells)) == len(cells) == 8
    assert cells[:2] == [("cpu", "a", "float32"), ("cpu", "a", "float16")]


def test_tags_are_merged_and_the_narrowest_setting_wins():
    (request,) = requests(entry({"tags": {"a": "1", "b": "1"}}, {"tags": {"b": "2"}}), tags={"c": "3"})
    assert request.tags == {"a": "1", "b": "2", "c": "3"}


def test_each_grid_is_a_request_that_differs_only_in_its_grid():
    grids = ({"batch_sizes": (1, 2), "image_sizes": (32,)}, {"sequence_lengths": (512,)})
    (ask,) = cell_requests([entry({"grids": grids, "batch_sizes": (8,), "new_tokens": (4,)})], {}, ())
    first, second = ask.requests
    assert (first.batch_sizes, first.sequence_lengths, first.new_tokens, dict(first.axes)) == (
        (1, 2),
        None,
        (4,),
        {"image_size": (32,)},
    )
    assert (second.batch_sizes, second.sequence_lengths, second.new_tokens, dict(second.axes)) == (
        (8,),
        (512,),
        (4,),
        {},
    )


def test_a_flag_overrides_the_same_axis_in_grids():
    grids = ({"batch_sizes": (1,), "sequence_lengths": (128,)}, {"batch_sizes": (2,), "sequence_lengths": (512,)})
    found = requests(entry({"grids": grids}), sequence_lengths=(32,))
    assert [(request.batch_sizes, request.sequence_lengths) for request in found] == [((1,), (32,)), ((2,), (32,))]


def test_axes_are_shared_if_set_for_several_models_or_by_a_flag():
    model_settings = {"new_tokens": (4,), "grids": ({"steps": (2,)},)}
    (request,) = requests(entry({"image_sizes": (32,)}, model_settings))
    assert {"new_tokens", "steps"}.isdisjoint(request.shared_axes)
    assert "image_size" in request.shared_axes
    (request,) = requests(entry({}, model_settings), new_tokens=(8,))
    assert "new_tokens" in request.shared_axes


def test_a_cell_name_includes_the_request_and_its_location():
    (ask,) = cell_requests([entry()], {"devices": ("cpu",)}, ())
    assert ask.name == "m on cpu (float32) [models.yaml:2]"
