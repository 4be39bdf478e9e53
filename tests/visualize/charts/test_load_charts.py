"""Charts of load tests: levels, knees, limits and requests."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from benchmarking.core.records import REQUEST_RATE, Doubt, Samples
from tests.helpers.load import make_load, make_requests
from tests.helpers.run_changes import Alter
from visualize.drawing.figure import NotDrawn
from visualize.drawing.loads import REQUEST_PARTS
from visualize.drawing.rows import charts

QUICK = "Test CPU (server) · quick-engine · float32"


@pytest.fixture
def served(alter):
    """A load test at rates 1, 2 and 4 with (tokens/s, ms per token, goodput) for each; the knee is at 2."""

    def make(*given, knee=2.0, **fields):
        run = make_load(rates=(1.0, 2.0, 4.0), **fields)

        def measured(result):
            rate = result.point.axes[REQUEST_RATE]
            tokens, tpot, goodput = given[(1.0, 2.0, 4.0).index(rate)]
            own = {
                "throughput_tokens_per_sec": tokens,
                "time_per_output_token_ms": tpot,
                "time_to_first_token_ms": tpot,
            }
            rates = {"throughput_samples_per_sec": rate, "goodput_requests_per_sec": goodput}
            return replace(
                result, metrics={**result.metrics, **own, **rates}, extra={"load": {"is_knee": rate == knee}}
            )

        return alter.results(run, measured)

    return make


@pytest.fixture
def two_servers(served, alter):
    """A slow engine, and a fast engine whose highest rate is invalid."""
    slow = served((100.0, 20.0, 1.0), (200.0, 25.0, 1.5), (300.0, 50.0, 0.5), engine="slow-engine", knee=None)
    quick = served((120.0, 10.0, 1.0), (240.0, 12.5, 2.0), (480.0, 16.0, 3.9), engine="quick-engine")
    return slow, alter.results(quick, alter.invalid, where=lambda point: point.axes[REQUEST_RATE] == 4.0)


def test_the_frontier_is_the_pareto_front_of_valid_levels(two_servers, figures, see):
    (figure,) = figures("load_frontier", *two_servers)
    (axes,) = figure.axes
    assert see.points(axes, f"valid {QUICK}") == [(100, 120), (80, 240)]
    assert see.points(axes, f"crossed {QUICK}") == [(62.5, 480)]
    assert see.points(axes, "front") == [(100, 120), (80, 240), (20, 300)]
    assert {text.get_text() for text in axes.texts} == {"1 request/s", "2 requests/s", "4 requests/s"}
    assert see.texts(figure)[0].endswith("from 120 tokens/s at 100 per user to 300 tokens/s at 20 per user")


def test_many_servers_are_drawn_without_dotted_lines(served, figures, see):
    def dotted(count):
        runs = [
            served((120.0, 10.0, 1.0), (240.0, 12.5, 2.0), (480.0, 16.0, 3.9), engine=f"e{i}") for i in range(count)
        ]
        (figure,) = figures("load_latency", *runs)
        labels = [line.get_label() for axes in figure.axes for line in axes.lines]
        return figure, any(label.startswith(("_thin", "_knee")) for label in labels)

    few, has_dotted = dotted(4)
    assert has_dotted
    assert see.says(few, "dotted: goodput (requests that meet every limit)")
    many, has_dotted = dotted(5)
    assert not has_dotted
    assert see.says(many, "percentiles, goodput and knees are drawn for at most 4 servers")


def test_the_rows_of_the_table_say_which_line_they_are_of(two_servers, outcomes):
    (figure,) = outcomes("load_latency", *two_servers)
    head, rows = figure.table()
    named = [tuple(row[head.index(name)] for name in ("series", "point", "of")) for row in rows]
    assert len(set(named)) == len(named)
    assert {point.partition(", ")[2] for _, point, _ in named} == {"median", "successful", "goodput"}


def test_the_lines_of_two_engines_on_one_of_several_devices_differ_in_colour(two_servers, outcomes, alter):
    """Of one colour, the dotted lines and the knees of both would be one to the eye."""
    elsewhere = alter.on_device(alter.renewed(two_servers[0]), "Other CPU", "server")
    (figure,) = outcomes("load_latency", *two_servers, elsewhere)
    lines = [line for line in figure.panels[0].lines if line.role == "line"]
    assert len({line.colour for line in lines}) == 3
    assert {line.dashes for line in lines} == {0}


def test_open_and_closed_loops_never_share_a_picture(two_servers, outcomes):
    closed = make_load(concurrency=(1, 2, 4))
    for chart in ("load_frontier", "load_latency"):
        drawings = outcomes(chart, *two_servers, closed)
        assert [drawing.name_parts[-1] for drawing in drawings] == ["closed", "open"]


def test_latency_and_throughput_are_drawn_with_limits_and_the_knee(two_servers, figures, see):
    _, quick = two_servers
    (figure,) = figures("load_latency", quick)
    first, each, rates = figure.axes
    assert see.points(each, f"line {QUICK}") == [(1, 10), (2, 12.5)], "no line through an invalid level"
    assert see.points(rates, f"crossed {QUICK}") == [(4, 4)]
    assert see.points(rates, "offered") == [(0, 0), (4, 4)]
    assert see.points(rates, f"thin {QUICK}") == [(1, 1), (2, 2)]
    assert {x for x, _ in see.points(each, f"knee {QUICK}")} == {2.0}
    assert {y for _, y in see.points(first, "limit")} == {500.0}
    assert see.texts(figure)[0].endswith(": latency knee at 2 requests/s")
    assert see.says(figure, "Crossed: 1 of 3 points is invalid")


def test_a_goodput_that_the_throughput_hides_is_not_explained(served, outcomes):
    for last, is_told in ((1.0, True), (4.0, False)):
        run = served((120.0, 10.0, 1.0), (240.0, 12.5, 2.0), (480.0, 16.0, last), knee=None)
        (figure,) = outcomes("load_latency", run)
        assert ("goodput" in " ".join(figure.caption)) is is_told


def test_a_goodput_without_a_line_is_explained_as_a_small_mark(served, outcomes):
    run = served((120.0, 10.0, 1.0), (240.0, 12.5, 2.0), (480.0, 16.0, 1.0), knee=None)
    axes = {name: value for name, value in run.results[0].point.axes.items() if name != REQUEST_RATE}
    last = replace(run.results[-1], point=replace(run.results[-1].point, axes=axes))
    (figure,) = outcomes("load_latency", replace(run, results=(run.results[0], last)))
    assert "; small marks: goodput (" in figure.caption[0], figure.caption


def test_a_single_level_is_not_drawn(outcomes):
    (outcome,) = outcomes("load_latency", make_load(rates=(1.0,)))
    assert isinstance(outcome, NotDrawn)
    assert outcome.why == "only one level was measured"


def test_levels_with_the_same_rates_are_no_frontier(served, outcomes):
    (outcome,) = outcomes("load_frontier", served(*[(120.0, 10.0, 1.0)] * 3))
    assert outcome.why == "its levels have the same rates"


def test_request_bars_show_waiting_first_token_end_and_failure(outcomes, alter):
    requests = make_requests(
        intended_ms=(1000.0, 2000.0), sent_ms=(1500.0, 2000.0), first_token_ms=(2500.0, None), end_ms=(4000.0, 2250.0)
    )
    load = alter.results(make_load(rates=(1.0,)), lambda result: replace(result, requests=(requests,)))
    (figure,) = outcomes("request_timeline", load)
    bars, flight = figure.panels
    parts = {name: [(one.left, one.right) for one in bars.blocks if one.role == name] for name in REQUEST_PARTS}
    assert parts["waiting to be sent"] == [(0, 0.5)]
    assert parts["until first token"] == [(0.5, 1.5), (1, 1.25)]
    (failed,) = bars.lines
    assert [(one.x, one.y, one.state) for one in failed.marks] == [(1.25, 2, "invalid")]
    assert [(one.x, one.y) for one in flight.lines[0].marks] == [(0.5, 1), (1, 2), (1.25, 1), (3, 0)]
    assert "1 of 2 requests failed (refused)" in " ".join(figure.caption)


def test_a_level_that_is_invalid_says_so_in_the_title_of_its_requests_whose_bars_are_not_crossed(outcomes, alter):
    load = alter.results(
        make_load(rates=(1.0,)), lambda result: replace(alter.invalid(result), requests=(make_requests(),))
    )
    (figure,) = outcomes("request_timeline", load)
    assert figure.title.endswith(" at 1 request/s (invalid)")
    assert [one.label for one in figure.legend] == [*REQUEST_PARTS, "failed"], "a cross is a failed request"
    assert "The point is invalid" in (text := " ".join(figure.caption))
    assert "Crossed" not in text


def test_the_requests_that_were_sent_at_once_had_no_other_arrivals(outcomes):
    def load(arrivals, results):
        whole = [replace(one, requests=(make_requests(),)) for one in results]
        mode = {**make_load().cell.runtime_mode, "arrivals": arrivals}
        return Alter.renewed(Alter.mode(replace(make_load(rates=(1.0,)), results=tuple(whole)), **mode))

    (level,) = make_load(rates=(1.0,)).results
    axes = {name: value for name, value in level.point.axes.items() if name != REQUEST_RATE}
    bare = replace(level, point=replace(level.point, axes=axes))
    drawn = outcomes("request_timeline", load("poisson", [level]), load("at_once", [bare]))
    at = {figure.title.partition(" at ")[2]: figure.source for figure in drawn}
    assert "arrivals poisson" in at["1 request/s"]
    assert "arrivals at once" in at["unlimited requests/s"]


def test_of_the_many_levels_of_a_search_only_those_that_decide_have_a_picture_of_their_requests(
    outcomes, alter, shared_warehouse
):
    def shared(result):
        rate = result.point.axes[REQUEST_RATE]
        good = 1.0 if rate < 2.2 else 0.5
        load = {"load": {"is_knee": rate == 4.0}}
        return replace(result, metrics={**result.metrics, "goodput_share": good}, extra=load)

    rates = (1.0, 2.0, 2.05, 2.114, 2.2, 3.0, 4.0, 8.0)
    few, many = (alter.results(make_load(rates=one), shared) for one in (rates[:6], rates))
    drawn = outcomes("request_timeline", many)
    at = [one.title.partition(" at ")[2] for one in drawn if not isinstance(one, NotDrawn)]
    assert sorted(at) == ["2.114 requests/s", "2.2 requests/s", "4 requests/s"]
    (rest,) = (one for one in drawn if isinstance(one, NotDrawn))
    assert rest.what == "Requests over time of 5 more levels"
    condition = re.search('"sql:(.*)"$', rest.why)[1]
    (found,) = shared_warehouse.query(
        f"SELECT axes->>'request_rate' AS rate FROM all_results WHERE {condition}"
    ).dicts()
    assert float(found["rate"]) in rates, "what the sentence proposes selects a level"
    assert len(outcomes("request_timeline", few)) == 6, "a sweep of a few levels is drawn whole"


def test_a_load_whose_levels_are_all_invalid_explains_no_lines(served, outcomes, alter):
    run = served((120.0, 10.0, 1.0), (240.0, 12.5, 2.0), (480.0, 16.0, 3.9))
    for load, has_lines in ((run, True), (alter.results(run, alter.invalid), False)):
        (figure,) = outcomes("load_latency", load)
        assert ("Solid: median times" in " ".join(figure.caption)) is has_lines
        assert ("otted: " in " ".join(figure.caption)) is has_lines
        assert (figure.caption[0].startswith("Dashed grey: offered load")) is not has_lines


def test_an_unlimited_rate_is_a_level_of_its_own_at_the_right_edge(served, outcomes, alter):
    """Such as `--request-rate inf` of vLLM: no number of requests per second was offered, least of all 0."""
    run = served((120.0, 10.0, 1.0), (240.0, 12.5, 2.0), (480.0, 16.0, 3.9), knee=None)
    point = run.results[-1].point
    axes = {name: value for name, value in point.axes.items() if name != REQUEST_RATE}
    doubt = Doubt(kind="concurrency_unlimited", severity="info", evidence={})
    unlimited = replace(run.results[-1], point=replace(point, axes=axes), doubts=(doubt,))
    whole = replace(run, results=(*run.results[:-1], unlimited))
    (figure,) = outcomes("load_latency", whole)
    for panel in figure.panels:
        line, alone = (one for one in panel.lines if one.role == "line")
        assert ([one.x for one in line.joined], [one.x for one in alone.marks]) == ([1.0, 2.0], [2.5])
        assert not alone.joined, "no line leads to what is no load"
        assert panel.x.ticks[-1] == (2.5, "unlimited")
    assert "unlimited: all requests are sent at once" in " ".join(figure.caption)
    (front,) = outcomes("load_frontier", whole)
    assert "unlimited requests/s" in {one.text for one in front.panels[0].notes}
    (figure,) = outcomes("load_latency", replace(whole, results=(*run.results[:-1], replace(unlimited, doubts=()))))
    assert figure.panels[0].x.ticks[-1] == (3.0, "not stated"), "unknown is not unlimited"
    poisson, at_once = (Alter.mode(run, **{**run.cell.runtime_mode, "arrivals": one}) for one in ("poisson", "at_once"))
    at_once = Alter.renewed(replace(at_once, results=(replace(unlimited, doubts=()),)))
    (figure,) = outcomes("load_latency", poisson, at_once)
    assert figure.panels[0].x.ticks[-1][1] == "unlimited", "also beside the levels of its server"
    assert len(figure.legend) == 1


def test_a_load_whose_file_states_no_loop_is_at_no_number_of_requests(served, outcomes):
    imported = []
    for engine in ("slow-engine", "quick-engine"):
        run = served((120.0, 10.0, 1.0), (240.0, 12.5, 2.0), (480.0, 16.0, 3.9), knee=None, engine=engine)
        result = replace(run.results[-1], point=replace(run.results[-1].point, axes={}))
        imported.append(Alter.mode(replace(run, results=(result,)), **{**run.cell.runtime_mode, "loop": "not stated"}))
    (figure,) = outcomes("load_latency", *imported)
    assert (figure.panels[0].x.title, figure.panels[0].x.ticks[-1][1]) == ("Load", "not stated")


def test_the_server_during_the_load_is_shown_level_by_level_without_searches(served, outcomes, alter):
    """Rates are numbers, of which 16 comes after 2, and a search for a rate is no level."""
    run = served((1.0, 1.0, 1.0), (1.0, 1.0, 1.0), (1.0, 1.0, 1.0), knee=None)

    def read(result):
        raw = [
            Samples(launch=0, phase="measure", metric=metric, unit="", started_at="2026-01-02T03:04:06Z", values=values)
            for metric, values in (("monitor_time", (0.0, 500.0)), ("utilization", (10.0, 20.0)))
        ]
        rate = {4.0: 16.0}.get(result.point.axes[REQUEST_RATE], result.point.axes[REQUEST_RATE])
        return replace(result, samples=tuple(raw), point=replace(result.point, axes={REQUEST_RATE: rate}))

    run = alter.results(run, read)
    searched = replace(
        run.results[0], point=replace(run.results[0].point, axes={}), extra={"load": {"searched_per_s": 3.0}}
    )
    searched = alter.renewed(replace(run, results=(searched,)))
    (figure,) = outcomes("use_over_time", run, searched)
    assert [entry.label for entry in figure.legend] == ["1 request/s", "2 requests/s", "16 requests/s"]
    stored = ", ".join(f"{name}={value}" for name, value in sorted(run.cell.runtime_mode.items()))
    assert "loop=open" in stored
    assert stored in figure.details, "names of files keep the settings as scripts know them"


def test_a_server_looks_the_same_in_a_chart_of_its_own_and_beside_others(two_servers, rows_of):
    chart = charts()["load_latency"]
    rows = rows_of("load_latency", *two_servers)
    for runtime in ("quick-engine", "slow-engine"):
        own = [row for row in rows if row["runtime"] == runtime]
        (alone,) = chart.draw(own)
        (beside,) = chart.draw([{**row, "is_own": row in own} for row in rows])
        (entry,) = (one for one in beside.legend if runtime in one.label)
        assert beside.legend[0] == entry
        assert (entry.colour, entry.shape, entry.dashes) == (0, 0, 0)
        assert {line.colour for panel in alone.panels for line in panel.lines if line.label} == {entry.colour}


def test_load_levels_are_not_drawn_as_grid_points(charts_of):
    draw = charts_of(make_load())
    assert [draw(name) for name in ("latency_vs_batch_size", "pareto_front", "time_to_first_token")] == [[], [], []]
