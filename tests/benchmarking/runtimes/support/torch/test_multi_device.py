"""One model on several devices, all of which are the CPU here."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from benchmarking.core.errors import UnsupportedError, UsageError
from benchmarking.core.records import Cell, Device, Point, Readings
from benchmarking.devices.support.handles import combine_devices
from benchmarking.runtimes import compiled
from benchmarking.runtimes.eager import PLUGIN
from benchmarking.runtimes.support.torch import several_devices
from benchmarking.runtimes.support.torch.several_devices import JoinedMarks
from benchmarking.runtimes.support.worker_threads import WorkerThreads
from benchmarking.workloads.support.resolve import resolve

GPUS = [
    Device(
        type="cuda",
        selector=f"cuda:{number}",
        found=True,
        name="Test GPU",
        memory_bytes=1_000,
        precisions=("float32", "float16", "int8"),
    )
    for number in range(2)
]
BOTH = combine_devices(GPUS)


def cell_of(model_id, placement, device=BOTH, attention=None, **fields):
    workload = resolve(model_id, weights="random")
    options = {"placement": placement, "attention": attention}
    options = {name: value for name, value in options.items() if value is not None}
    return Cell(
        workload=workload,
        device=device,
        requested_device=device.selector,
        runtime="eager",
        runtime_mode=PLUGIN.mode(device, workload, options),
        **fields,
    )


@pytest.fixture
def open_on() -> Iterator[Callable[..., Any]]:
    """Opens a session on torch devices by a joined name; all are closed at the end."""
    sessions = []

    def make(cell, torch_name="cpu,cpu"):
        handle = SimpleNamespace(torch_name=torch_name)
        sessions.append(PLUGIN.open(cell, handle, lambda name: nullcontext(), ()))
        return sessions[-1]

    yield make
    for session in sessions:
        session.close()


def arrays(session, point, marks=None):
    operation = session.operation(point)
    operation.reset()
    output = operation.run((marks if marks is not None else []).append)
    assert operation.problem(output) is None
    return operation, operation.arrays(output)


@pytest.mark.parametrize("batch_size", [2, 5])
def test_replicas_give_the_rows_that_one_model_gives(open_on, batch_size):
    point = Point(batch_size=batch_size, sequence_length=16)
    split, together = arrays(open_on(cell_of("tiny-bert", "replicas")), point)
    _, alone = arrays(open_on(cell_of("tiny-bert", None, GPUS[0]), "cpu"), point)
    assert together.keys() == alone.keys()
    for name, values in alone.items():
        np.testing.assert_allclose(together[name], values, rtol=1e-4, atol=1e-5)
    assert (split.items_per_call, split.tokens_per_call) == (batch_size, batch_size * 16)
    split.close()


def test_generated_tokens_are_marked_once_over_all_replicas(open_on):
    point, marks = Point(batch_size=3, sequence_length=8, new_tokens=4), []
    split, together = arrays(open_on(cell_of("tiny-gpt2", "replicas")), point, marks)
    _, alone = arrays(open_on(cell_of("tiny-gpt2", None, GPUS[0]), "cpu"), point)
    assert marks.count("token") == 4
    assert {name: values.shape for name, values in together.items()} == {n: v.shape for n, v in alone.items()}
    assert split.new_tokens == 4
    split.close()


def test_weights_and_shares_of_the_replicas_are_read_back(open_on):
    session = open_on(cell_of("tiny-bert", "replicas"))
    alone = open_on(cell_of("tiny-bert", None, GPUS[0]), "cpu")
    assert session.weights_bytes == 2 * alone.weights_bytes
    assert session.parameter_count == alone.parameter_count
    assert (session.verified["placement"], session.verified["replicas"]) == ("replicas", 2)
    operation, _ = arrays(session, Point(batch_size=3, sequence_length=8))
    assert operation.verified()["batch_by_device"] == [
        {"device": "cpu", "batch_size": 2},
        {"device": "cpu", "batch_size": 1},
    ]
    counted, single = operation.count(), arrays(alone, Point(batch_size=3, sequence_length=8))[0].count()
    assert counted.values["flops"] == single.values["flops"]
    operation.close()


@pytest.mark.parametrize("placement", ["replicas", "sharded"])
def test_the_kernel_and_the_models_own_code_are_read_back_as_on_one_device(open_on, placement):
    facts = open_on(cell_of("tiny-mixtral", placement, attention="sdpa:math")).verified
    alone = open_on(cell_of("tiny-mixtral", None, GPUS[0], "sdpa:math"), "cpu").verified
    names = ("attention", "attention_kernels_allowed", "experts")
    assert [facts[name] for name in names] == [alone[name] for name in names]
    assert facts["attention"] == "sdpa:math"


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(100, 100, bias=False)


class Model(torch.nn.Module):
    """Equal parts of 100 x 100 values: an embedding, blocks, and a head that may be tied to the embedding."""

    _no_split_modules = ("Block",)

    def __init__(self, blocks, tied=False):
        super().__init__()
        self.embed = torch.nn.Embedding(100, 100)
        self.body = torch.nn.ModuleDict({"blocks": torch.nn.ModuleList(Block() for _ in range(blocks))})
        self.head = torch.nn.Linear(100, 100, bias=False)
        if tied:
            self.head.weight = self.embed.weight


def test_layers_are_spread_in_order_with_even_shares_of_the_bytes():
    """Six parts in halves are three and three; in quarters of 1.5 the middles 0.5 to 5.5 fall to 0, 1, 1, 2, 3, 3."""
    halves = several_devices.device_map(Model(4), ["cuda:0", "cuda:1"])
    assert list(halves.values()) == ["cuda:0"] * 3 + ["cuda:1"] * 3
    assert list(halves) == ["embed", *(f"body.blocks.{number}" for number in range(4)), "head"]
    quarters = several_devices.device_map(Model(4), ["a", "b", "c", "d"])
    assert list(quarters.values()) == ["a", "b", "b", "c", "d", "d"]


def test_tied_head_stays_on_its_embeddings_device():
    assert several_devices.device_map(Model(4, tied=True), ["cuda:0", "cuda:1"])["head"] == "cuda:0"


def test_unsplittable_model_is_refused():
    with pytest.raises(UnsupportedError, match="too small to be split over a, b, c: b would get no part"):
        several_devices.device_map(Model(0), ["a", "b", "c"])
    with pytest.raises(UnsupportedError, match="Linear does not declare where it can be split"):
        several_devices.device_map(torch.nn.Linear(2, 2), ["a", "b"])


def test_sharded_model_computes_the_same(open_on):
    point = Point(batch_size=1, sequence_length=16)
    session = open_on(cell_of("tiny-bert", "sharded"))
    _, spread = arrays(session, point)
    _, alone = arrays(open_on(cell_of("tiny-bert", None, GPUS[0]), "cpu"), point)
    for name, values in alone.items():
        np.testing.assert_allclose(spread[name], values, rtol=1e-5, atol=1e-6)
    assert session.verified["placement"] == "sharded"
    assert set(session.verified["device_map"].values()) == {"cpu"}


@pytest.mark.parametrize(("batch_size", "expected"), [(2, [1, 1]), (5, [3, 2]), (7, [4, 3]), (1, [1, 0])])
def test_batch_is_split_evenly(batch_size, expected):
    assert several_devices.split_batch(batch_size, 2) == expected


def test_batch_smaller_than_the_number_of_devices_cannot_be_split():
    point = Point(batch_size=1, sequence_length=8)
    assert "use --batch-sizes of 2 or more" in several_devices.why_not_point(cell_of("tiny-bert", "replicas"), point)
    assert several_devices.why_not_point(cell_of("tiny-bert", "sharded"), point) is None
    assert several_devices.why_not_point(cell_of("tiny-bert", None, GPUS[0]), point) is None
    assert [
        several_devices.weight_copies(cell_of("tiny-bert", placement)) for placement in ("replicas", "sharded")
    ] == [2, 1]


def test_families_with_dependent_rows_are_sharded_but_not_replicated():
    with pytest.raises(UnsupportedError, match="the rows of vision-text depend on each other: use --placement sharded"):
        PLUGIN.mode(BOTH, resolve("tiny-clip"), {})
    assert PLUGIN.mode(BOTH, resolve("tiny-clip"), {"placement": "sharded"})["placement"] == "sharded"


def test_placement_needs_several_devices_and_a_supporting_runtime():
    with pytest.raises(UsageError, match="has no option 'placement'"):
        PLUGIN.mode(GPUS[0], resolve("tiny-bert"), {"placement": "sharded"})
    with pytest.raises(UsageError, match="placement 'both': runtime eager has replicas, sharded"):
        PLUGIN.mode(BOTH, resolve("tiny-bert"), {"placement": "both"})
    assert "placement" not in PLUGIN.mode(GPUS[0], resolve("tiny-bert"), {})
    assert PLUGIN.runs_on_several
    assert not compiled.PLUGIN.runs_on_several


def test_quantized_models_are_not_put_on_several_devices():
    assert PLUGIN.supports(BOTH, resolve("tiny-bert"), "int8") == (
        "several devices support float32, tf32, bfloat16, float16, not int8"
    )
    assert PLUGIN.supports(BOTH, resolve("tiny-bert"), "float16") is None


def test_per_call_readings_are_summed_and_others_averaged():
    per_device = [
        Readings(values={"audio_seconds_per_call": 2.0, "expert_load_imbalance": 1.0, "only_here": 1.0}),
        Readings(values={"audio_seconds_per_call": 1.0, "expert_load_imbalance": 3.0}, missing={"only_here": "failed"}),
    ]
    together = several_devices.merge_readings(per_device)
    assert together.values == {"audio_seconds_per_call": 3.0, "expert_load_imbalance": 2.0}
    assert together.missing == {"only_here": "failed"}


def test_replica_threads_run_concurrently_and_return_results_in_order():
    """Each task waits for the other, so they would never end if run one after the other."""
    threads, barrier = WorkerThreads(2), threading.Barrier(2, timeout=30)
    assert threads.run([lambda: barrier.wait() * 0 + 1, lambda: barrier.wait() * 0 + 2]) == [1, 2]
    assert threads.run([lambda: "a", lambda: "b"]) == ["a", "b"]
    threads.close()


def test_each_replica_runs_with_its_own_gpu_current(monkeypatch):
    current, ran = threading.local(), []

    @contextmanager
    def current_gpu(torch, name):
        current.name = name
        yield
        current.name = None

    monkeypatch.setattr(several_devices, "current_gpu", current_gpu)
    sizes = {
        "items_per_call": 1,
        "tokens_per_call": None,
        "prompt_tokens_per_call": None,
        "new_tokens": None,
        "streams": True,
    }
    replicas = [SimpleNamespace(**sizes, run=lambda mark: ran.append(current.name)) for _ in range(2)]
    operation = several_devices.ReplicatedOperation(replicas, ["cuda:0", "cuda:1"], Readings)
    operation.run(lambda name: None)
    operation.close()
    assert sorted(ran) == ["cuda:0", "cuda:1"]


def test_failed_replica_raises_and_releases_the_others():
    threads, marks = WorkerThreads(2), JoinedMarks(lambda name: None, 2)

    def fail():
        try:
            raise ValueError("device-side assert")
        finally:
            marks.abort()

    with pytest.raises(ValueError, match="device-side assert"):
        threads.run([lambda: marks.of(0)("encode"), fail])
    assert threads.run([lambda: 1, lambda: 2]) == [1, 2]
    threads.close()


def test_phases_and_tokens_end_with_the_last_replica():
    seen = []
    marks = JoinedMarks(seen.append, 2)
    fast, slow = marks.of(0), marks.of(1)
    fast("token")
    fast("token")
    assert seen == []
    slow("token")
    assert seen == ["token"]
    slow("token")
    assert seen == ["token", "token"]
    other = threading.Thread(target=fast, args=("encode",))
    other.start()
    slow("encode")
    other.join()
    assert seen == ["token", "token", "encode"]
