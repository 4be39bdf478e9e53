"""Several numbers of threads in one command: a run for each, and their scaling."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial

import pytest

from benchmarking import batch_benchmark, run_hardware_benchmark
from benchmarking.sweep.show.report import scaling_text, scalings

pytestmark = pytest.mark.forked_children

COMMON = ["--batch-sizes", "1", "--sequence-lengths", "32", "--profile", "quick", "--weights", "random"]


def with_threads(run, count):
    return replace(run, cell=replace(run.cell, num_threads=count))


def test_the_speedup_is_over_the_fewest_threads_and_efficiency_over_perfect_scaling(make_run):
    one_point = partial(make_run, batch_sizes=(1,), sequence_lengths=(32,))
    runs = [with_threads(one_point(slowdown=times), count) for count, times in ((4, 4.0), (1, 10.0), (2, 5.0))]
    (found,) = scalings([*runs, one_point()])
    assert [one.threads for one in found.points] == [1, 2, 4]
    assert found.points[0].speedup is None
    assert [one.speedup.ratio for one in found.points[1:]] == pytest.approx([2.0, 2.5])
    assert [one.efficiency for one in found.points[1:]] == pytest.approx([1.0, 0.625])
    text = scaling_text(found)
    assert "scaling over threads" in text
    assert "62%" in text


def test_one_number_of_threads_has_no_scaling(make_run):
    assert scalings([with_threads(make_run(), 2), with_threads(make_run(), 2)]) == ()


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (run_hardware_benchmark.main, ["--model-id", "tiny-bert", "--device", "null"]),
        (batch_benchmark.main, ["--models", "tiny-bert", "--devices", "null"]),
    ],
)
def test_each_number_of_threads_is_a_separate_run(command, words, capsys):
    assert command([*words, *COMMON, "--num-threads", "4,1,2", "--dry-run", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    plans = document if isinstance(document, list) else document["cells"]
    assert [plan["cell"]["num_threads"] for plan in plans] == [1, 2, 4]
    assert len({plan["session_id"] for plan in plans}) == 1


def test_thread_counts_are_interleaved_and_followed_by_the_scaling(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["--model-id", "tiny-bert", "--device", "null", *COMMON, "--num-threads", "1,2", "--launches", "1"]
    assert run_hardware_benchmark.main([*words, "--quiet"]) == 0
    out = capsys.readouterr().out
    assert out.count("tiny-bert (") == 2
    assert "scaling over threads" in out
