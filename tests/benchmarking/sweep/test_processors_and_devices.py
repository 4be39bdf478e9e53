"""Plans with CPU binding, and plans for several devices as one."""

import dataclasses

import pytest

from benchmarking.core.errors import LockedError, UnsupportedError, UsageError
from benchmarking.core.records import Device, Point
from benchmarking.devices.support import binding
from benchmarking.devices.support.handles import combine_devices
from benchmarking.measure.context import settings
from benchmarking.sweep.plan.plan import Machine
from benchmarking.sweep.plan.request import Request, plan_cell
from benchmarking.sweep.run.lock import device_lock, device_locks, lock_names
from benchmarking.sweep.run.reference import is_reference, reference_cell
from benchmarking.workloads.support import footprint
from benchmarking.workloads.support.footprint import Fit

GPUS = tuple(
    Device(
        type="cuda",
        selector=f"cuda:{number}",
        found=True,
        name="Test GPU",
        count=2,
        memory_bytes=80 * 10**9,
        precisions=("float32", "float16"),
    )
    for number in range(2)
)


@pytest.fixture(autouse=True)
def no_hub(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path))


@pytest.fixture
def plan():
    machine = Machine()
    machine.devices["cuda"] = GPUS

    def make(**fields):
        fields = {"model_id": "tiny-bert", "batch_sizes": (2,), "sequence_lengths": (16,), **fields}
        return plan_cell(Request(settings=settings("quick"), **fields), "session", machine=machine)

    return make


@pytest.fixture
def eight_processors_on_four_cores(monkeypatch):
    monkeypatch.setattr(binding, "allowed_cpus", lambda: list(range(8)))
    monkeypatch.setattr(binding, "physical_cores", lambda cpus, root: len({cpu % 4 for cpu in cpus}))


def test_bound_cells_have_a_canonical_cpu_list_and_one_thread_per_core(plan, eight_processors_on_four_cores):
    cell = plan(device="cpu", cpu_list="5,0-1").cell
    assert (cell.cpu_list, cell.num_threads) == ("0-1,5", 2)
    assert plan(device="cpu", cpu_list="0-7", num_threads=8).cell.num_threads == 8
    assert plan(device="cpu").cell.num_threads is None


def test_cpu_binding_is_not_part_of_the_hardware(plan, eight_processors_on_four_cores):
    bound, free = plan(device="cpu", cpu_list="0-1", num_threads=2), plan(device="cpu")
    assert bound.hardware.hardware_id == free.hardware.hardware_id


def test_unavailable_processors_are_errors_or_skipped(plan, eight_processors_on_four_cores):
    with pytest.raises(UnsupportedError, match="--cpu-list 6-9: processors 8-9"):
        plan(device="cpu", cpu_list="6-9")
    with pytest.raises(UsageError, match="takes a list such as"):
        plan(device="cpu", cpu_list="all", skip_unsupported=True)
    (why,) = plan(device="cpu", cpu_list="6-9", skip_unsupported=True).skipped.values()
    assert "processors 8-9" in why


def test_several_devices_are_one_cell_with_their_own_hardware(plan):
    both, one = plan(device="cuda:0,cuda:1"), plan(device="cuda:0")
    assert both.cell.device.selector == "cuda:0,cuda:1"
    assert both.cell.runtime_mode["placement"] == "replicas"
    assert "placement" not in one.cell.runtime_mode
    assert both.hardware.hashed_keys["device_name"] == "2 x Test GPU"
    assert both.hardware.hardware_id != one.hardware.hardware_id


def test_single_device_runtimes_refuse_several_devices(plan):
    with pytest.raises(UnsupportedError, match="runtime compiled uses a single device, not cuda:0,cuda:1"):
        plan(device="cuda:0,cuda:1", runtime="compiled")


def test_indivisible_batches_are_errors_or_skipped(plan):
    with pytest.raises(UsageError, match="cannot split a batch of 1 over 2 devices"):
        plan(device="cuda:0,cuda:1", batch_sizes=(1, 4))
    assert list(plan(device="cuda:0,cuda:1", batch_sizes=(1, 4), skip_unsupported=True).skipped) == ["b1 s16"]
    spread = plan(device="cuda:0,cuda:1", batch_sizes=(1, 4), options={"placement": "sharded"})
    assert spread.skipped == {}


def test_replicas_need_their_weights_on_every_device(plan, monkeypatch):
    """Two of 60 GB are in the 160 GB of both devices, two of 90 GB are not, and one of 90 GB is, spread over them."""
    monkeypatch.setattr(footprint, "free_host_bytes", lambda: 10**12)
    point = Point(batch_size=2, sequence_length=16)
    for weights_gb, placement, fits in ((60, "replicas", True), (90, "replicas", False), (90, "sharded", True)):
        cell = plan(device="cuda:0,cuda:1", options={"placement": placement}).cell
        fit = Fit(cell=cell, weights_bytes=weights_gb * 10**9, min_bytes=0, free=footprint.free_memory(cell.device))
        why = fit.why_not(point)
        assert (why is None) is fits
        assert why is None or "90.0 GB for weights on each of 2 devices" in why


def test_outputs_of_another_memory_format_are_compared_with_the_default_one(plan):
    cell = plan(device="cpu").cell
    assert is_reference(cell)
    other = dataclasses.replace(cell, runtime_mode={**cell.runtime_mode, "memory_format": "channels_last"})
    assert not is_reference(other)
    assert reference_cell(other).runtime_mode == cell.runtime_mode


def test_outputs_of_one_and_of_several_gpus_are_compared_with_the_cpu(plan):
    """A float32 eager run on a GPU would only be compared with itself."""
    both, one = plan(device="cuda:0,cuda:1").cell, plan(device="cuda:0").cell
    for cell in (one, both):
        assert not is_reference(cell)
        assert reference_cell(cell).device.type == "cpu"
        assert reference_cell(cell).precision == "float32"
    assert "placement" not in reference_cell(both).runtime_mode


def test_several_devices_are_locked_in_a_fixed_order(tmp_path, monkeypatch):
    monkeypatch.delenv("BENCHHOUSE_LOCK_DIR")
    monkeypatch.setattr("benchmarking.sweep.run.lock.BASE", tmp_path)
    names = lock_names(combine_devices(GPUS[::-1]))
    assert names == ("cuda-cuda:0", "cuda-cuda:1") == lock_names(combine_devices(GPUS))
    assert lock_names(Device(type="null", selector="null", found=True)) == ()
    messages = []
    with device_locks(combine_devices(GPUS[::-1]), messages.append):
        assert {path.stem for path in (tmp_path / "benchhouse-locks").glob("*.lock")} == set(names)
        for name in names:
            with pytest.raises(LockedError), device_lock(name, lambda message: None, 0.0):
                pass
    with device_lock(names[0], messages.append), device_lock(names[1], messages.append):
        assert messages == []
