"""hyperfine's export: seconds of fresh processes, parameters and failures."""

from __future__ import annotations

import pytest

from db.importers.support.files import read_file
from db.importers.timers import HYPERFINE
from tests.helpers.paths import FIXTURES

FOLDER = FIXTURES / "imports/hyperfine"


def runs(name):
    return list(HYPERFINE.runs(read_file(FOLDER / name)))


def test_each_command_is_a_run_with_its_times_in_milliseconds():
    short, long = runs("two_commands.json")
    assert [run.cell.workload.model_id for run in (short, long)] == ["sleep 0.01", "sleep 0.02"]
    (result,) = short.results
    (samples,) = result.samples
    assert samples.values == pytest.approx((11.200831, 11.295298, 11.127744, 11.171035, 11.187055))
    assert result.metrics["latency_median_ms"] == pytest.approx(11.187055)
    assert result.metrics["latency_mean_ms"] == pytest.approx(11.1963926)
    assert result.metrics["latency_std_ms"] == pytest.approx(0.06173493030124843)
    assert (result.metrics["cpu_user_ms"], result.metrics["cpu_system_ms"]) == pytest.approx((0.8054, 0.1944))
    assert result.extra["kept"]["stated"]["latency_std_ms"] == pytest.approx(0.06173493030124843)


def test_a_number_among_the_parameters_is_an_axis():
    assert [run.results[0].point.label for run in runs("parameters.json")] == ["b1 n=10", "b1 n=20"]


@pytest.mark.parametrize("end", ["-m models/llama-7b.Q4_0.gguf", "~/hub/models--org--net", "./net/"])
def test_a_command_that_ends_with_a_path_of_a_model_is_itself(edited, end):
    commands = [f"a.sh {end}", f"b.sh {end}"]

    def other(data):
        for result, command in zip(data["results"], commands, strict=True):
            result["command"] = command

    found = list(HYPERFINE.runs(read_file(edited(FOLDER / "two_commands.json", other))))
    assert [run.cell.workload.model_id for run in found] == commands


def test_the_parameter_of_an_older_version_has_no_name(edited):
    def older(data):
        for result in data["results"]:
            result["parameter"] = result.pop("parameters")["n"]

    found = list(HYPERFINE.runs(read_file(edited(FOLDER / "parameters.json", older))))
    assert [run.results[0].point.label for run in found] == ["b1 parameter=10", "b1 parameter=20"]


def test_a_failed_command_is_not_a_valid_result():
    (run,) = runs("failing.json")
    (result,) = run.results
    assert result.validity == "invalid"
    assert [doubt.evidence for doubt in result.doubts if doubt.kind == "command_failed"] == [{"n": 3, "of": 3}]
    assert result.metrics["latency_median_ms"] == pytest.approx(1.123928)


def test_times_below_what_the_shell_takes_are_unknown_and_not_0(edited):
    def shorter(data):
        data["results"] = data["results"][:1]
        data["results"][0] |= {"times": [0.0, 0.0, 0.0057], "mean": 0.0019, "median": 0.0, "min": 0.0, "max": 0.0057}

    (run,) = HYPERFINE.runs(read_file(edited(FOLDER / "two_commands.json", shorter)))
    (result,) = run.results
    assert (result.metrics["latency_mean_ms"], result.metrics["latency_max_ms"]) == pytest.approx((1.9, 5.7))
    for name in ("latency_median_ms", "latency_min_ms"):
        assert name not in result.metrics
        assert result.missing[name] == "left_out: 0 in the file: shorter than the tool resolves"
    assert (result.validity, [one.kind for one in result.doubts]) == ("noisy", ["undated", "below_resolution"])
