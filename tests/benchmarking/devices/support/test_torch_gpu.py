"""The installed torch, its GPUs, the processes on them, and CUDA_VISIBLE_DEVICES."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest

from benchmarking.core.errors import BenchhouseError
from benchmarking.core.records import Device, Readings
from benchmarking.devices.support import torch_gpu
from benchmarking.devices.support.handles import open_several
from benchmarking.devices.support.system_values import all_missing
from benchmarking.devices.support.torch_gpu import (
    TorchGpuHandle,
    parse_build,
    torch_build,
    torch_index,
    visible,
)

CUDA_BUILD = """from typing import Optional
__all__ = ['__version__', 'debug', 'cuda', 'git_version', 'hip', 'xpu']
__version__ = '2.11.0+cu130'
debug = False
cuda: Optional[str] = '13.0'
git_version = 'cf30153c4c131c8164ee7798e5022d810682e2cb'
hip: Optional[str] = None
"""


def gpu(**fields):
    facts = {"uuid": "GPU-5f1c7d0e-6b3a-4c8e-9d2f-1a2b3c4d5e6f", "pci_address": "0000:18:00"}
    defaults = {"type": "cuda", "selector": "cuda:0", "found": True, "name": "H100", "facts": Readings(values=facts)}
    return Device(**{**defaults, **fields})


def test_build_is_read_from_the_version_file():
    build = parse_build(CUDA_BUILD)
    assert (build.version, build.cuda, build.hip) == ("2.11.0+cu130", "13.0", None)


def test_build_without_a_version_is_unknown():
    assert parse_build("debug = False\n").version == "of unknown version"


def test_the_build_is_read_without_importing_torch():
    call = "torch_gpu.torch_build()"
    code = f"import sys; from benchmarking.devices.support import torch_gpu; {call}; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_installed_torch_is_the_one_that_imports():
    import torch

    assert torch_build().version == torch.__version__


def test_index_is_matched_by_uuid_where_torch_has_no_pci_address(fake_torch):
    seen = [SimpleNamespace(name="a", uuid="00000000-1111-2222-3333-444444444444")]
    seen.append(SimpleNamespace(name="b", uuid="5f1c7d0e-6b3a-4c8e-9d2f-1a2b3c4d5e6f"))
    assert torch_index(fake_torch(seen), gpu()) == 1


def test_only_gpu_of_a_name_needs_no_other_identity(fake_torch):
    assert torch_index(fake_torch([SimpleNamespace(name="H100")]), gpu()) == 0


def test_no_gpu_is_taken_by_number_when_there_are_several(fake_torch):
    seen = [SimpleNamespace(name="H100"), SimpleNamespace(name="H100")]
    with pytest.raises(BenchhouseError, match="not among the GPUs torch sees: cuda:0 H100, cuda:1 H100"):
        torch_index(fake_torch(seen), gpu(count=2))


def test_parts_of_a_split_gpu_are_not_taken_for_one_another(fake_torch):
    part = SimpleNamespace(name="H100", pci_domain_id=0, pci_bus_id=0x18, pci_device_id=0)
    with pytest.raises(BenchhouseError, match="'cuda:0' is split: torch lists 2 GPUs"):
        torch_index(fake_torch([part, part]), gpu())


def test_gpu_invisible_to_torch_is_an_error_with_the_variables(fake_torch):
    seen = [SimpleNamespace(name="H100", pci_domain_id=0, pci_bus_id=0x2A, pci_device_id=0)]
    with pytest.raises(BenchhouseError, match="CUDA_VISIBLE_DEVICES"):
        torch_index(fake_torch(seen), gpu(count=2))


def test_torch_that_sees_no_gpu_is_an_error(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(BenchhouseError, match=r"'cuda:0' was found, but torch .* sees no GPU"):
        torch_gpu.import_torch(gpu())


def test_torchs_reason_is_in_the_error(monkeypatch):
    """As documented for torch 2.13 for CUDA 13 on a driver for CUDA 12.4: `is_available` is False, `init` raises."""

    def init():
        raise RuntimeError(
            "The NVIDIA driver on your system is too old (found version 12040). Please update your GPU driver\nmore"
        )

    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("torch.cuda.init", init)
    with pytest.raises(BenchhouseError, match=r"sees no GPU: The NVIDIA driver .* is too old \(found version 12040\)"):
        torch_gpu.import_torch(gpu())


def test_the_installed_torch_gives_its_reason_itself():
    """With the real package, whose CPU build raises these errors."""
    if torch_gpu.torch_build().cuda is not None:
        pytest.skip("this torch is built with CUDA")
    with pytest.raises(BenchhouseError, match="sees no GPU: Torch not compiled with CUDA enabled"):
        torch_gpu.import_torch(gpu())


class Watch:
    def memory_in_use(self):
        return Readings(values={"device_used_bytes": 7})

    def state(self):
        return Readings(values={"clock_hz": 1})

    def energy_j(self):
        return all_missing("not_supported", ("gpu",))

    def close(self):
        self.is_closed = True


def test_handle_works_on_its_own_gpu(fake_torch):
    torch = fake_torch([])
    watch = Watch()
    handle = TorchGpuHandle(3, watch, torch)
    handle.synchronize()
    handle.reset_peak_memory()
    handle.empty_cache()
    assert torch.calls == [
        ("device", "cuda:3"),
        ("synchronize", (3,)),
        ("reset_peak_memory_stats", (3,)),
        ("device", "cuda:3"),
        ("empty_cache", ()),
        ("left", "cuda:3"),
    ]
    assert handle.torch_name == "cuda:3"
    assert handle.peak_memory().values == {
        "device_allocated_peak_bytes": 1_000_000,
        "device_reserved_peak_bytes": 2_097_152,
    }
    assert handle.memory_in_use().values == {"device_used_bytes": 7}
    handle.close()
    assert watch.is_closed
    assert torch.calls[-1] == ("left", "cuda:3")


@pytest.mark.parametrize(("l2_mib", "written_mib"), [(50, 512), (300, 600), (None, 512)])
def test_cold_cache_writes_twice_the_l2_and_frees_its_memory(fake_torch, l2_mib, written_mib):
    properties = SimpleNamespace() if l2_mib is None else SimpleNamespace(L2_cache_size=l2_mib << 20)
    torch = fake_torch([properties])
    torch.uint8 = "uint8"
    filled = []
    torch.empty = lambda size, *, dtype, device: SimpleNamespace(zero_=lambda: filled.append((size, dtype, device)))
    handle = TorchGpuHandle(0, Watch(), torch)
    with handle.cold_cache() as cold:
        cold.flush()
        cold.flush()
        assert ("empty_cache", ()) not in torch.calls
    assert filled == [(written_mib << 20, "uint8", "cuda:0")] * 2
    assert cold.size_bytes == written_mib << 20
    assert ("empty_cache", ()) in torch.calls
    assert handle.has_queue
    assert TorchGpuHandle(1, Watch(), torch).tracer() is not None


class Gpus:
    """torch's lowest calls, recorded; the rest of `torch.cuda` is the installed one."""

    def __init__(self, monkeypatch):
        self.current = 0
        self.with_context = set()
        self.recorded = []
        lowest = {"_exchange_device": self._exchange, "_maybe_exchange_device": self._maybe_exchange}
        for name, call in lowest.items():
            monkeypatch.setattr(f"torch.cuda.{name}", call)
        monkeypatch.setattr("torch.cuda._lazy_init", lambda: None)
        monkeypatch.setattr("torch.cuda.current_device", lambda: self.current)
        monkeypatch.setattr("torch._C._cuda_getCurrentStream", lambda index: (0, index, 1), raising=False)
        monkeypatch.setattr("torch.cuda.Stream", lambda **ids: SimpleNamespace(**ids))
        monkeypatch.setattr("torch.cuda.Event", lambda enable_timing: self)
        monkeypatch.setattr("torch.cuda.synchronize", self.touch)

    def record(self, stream=None):
        """As documented for torch.cuda.Event.record: without a stream, the current one is used."""
        import torch

        stream = torch.cuda.current_stream() if stream is None else stream
        self.recorded.append(stream.device_index)
        self.touch(stream.device_index)

    def touch(self, index):
        self.with_context.add(index)

    def _exchange(self, index):
        before, self.current = self.current, index
        self.with_context.add(index)
        return before

    def _maybe_exchange(self, index):
        """Sets the GPU only if it already has a context, as torch.cuda.device does on exit."""
        before = self.current
        if index in self.with_context:
            self.current = index
        return before


def test_events_of_the_second_gpu_leave_the_first_untouched(monkeypatch):
    import torch

    gpus = Gpus(monkeypatch)
    handle = TorchGpuHandle(1, Watch(), torch)
    assert gpus.current == 1
    timer = handle.timer()
    timer.start()
    timer.stop()
    handle.synchronize()
    handle.close()
    assert gpus.recorded == [1, 1]
    assert gpus.with_context == {1}


def test_each_gpu_has_its_own_events_and_the_first_is_current(monkeypatch):
    import torch

    gpus = Gpus(monkeypatch)
    devices = [gpu(selector=f"cuda:{index}") for index in (1, 2)]
    handles = open_several(devices, lambda device: TorchGpuHandle(int(device.selector[-1]), Watch(), torch))
    assert gpus.current == 1
    timer = handles.timer()
    timer.start()
    timer.stop()
    handles.close()
    assert gpus.recorded == [1, 2, 1, 2]
    assert gpus.with_context == {1, 2}


def test_a_call_in_another_thread_names_its_gpu(monkeypatch):
    import torch

    gpus = Gpus(monkeypatch)
    with torch_gpu.current_gpu(torch, "cuda:2"):
        assert gpus.current == 2
    with torch_gpu.current_gpu(torch, "cpu"):
        assert gpus.with_context == {2}


def test_events_give_whole_nanoseconds(fake_torch):
    timer = TorchGpuHandle(0, Watch(), fake_torch([])).timer()
    timer.start()
    timer.stop()
    assert timer.elapsed_ns() == 1_500_000


def gpus(*names):
    return [
        Device(
            type="cuda",
            selector=f"cuda:{index}",
            found=True,
            name=name,
            facts=Readings(values={"uuid": f"GPU-{index}abc-def", "is_mig_enabled": index == 1}),
        )
        for index, name in enumerate(names)
    ]


@pytest.mark.parametrize(
    ("setting", "left"),
    [
        (None, ["cuda:0", "cuda:1", "cuda:2"]),
        ("", []),
        ("-1", []),
        ("1", ["cuda:1"]),
        ("2,0", ["cuda:0", "cuda:2"]),
        ("0,7,1", ["cuda:0"]),
        ("GPU-2ab", ["cuda:2"]),
        ("gpu-0ABC-def, GPU-1", ["cuda:0", "cuda:1"]),
        ("MIG-3f1c", ["cuda:1"]),
        ("nonsense,0", []),
    ],
)
def test_visibility_setting_leaves_the_gpus_of_the_runtime(setting, left):
    assert [device.selector for device in visible(gpus("A", "A", "A"), setting)] == left


def test_a_setting_names_instances_and_amds_gpus_by_their_own_ids():
    facts = [{"is_mig_enabled": True, "mig_uuid": f"MIG-{index}aa"} for index in (1, 2)]
    split = [gpu(selector=f"cuda:{index}", facts=Readings(values=values)) for index, values in enumerate(facts)]
    assert [one.selector for one in visible(split, "MIG-2aa")] == ["cuda:1"]
    assert visible(split, "MIG-7aa") == ()
    radeon = gpu(selector="rocm:0", facts=Readings(values={"uuid": "b0ff74b5-0000", "unique_id": "348a2b8f6c1d5e00"}))
    assert visible([radeon], "GPU-348a2b8f6c1d5e00") == (radeon,)


def test_numeric_visibility_variables_hide_nothing_among_unlike_models():
    """CUDA numbers the fastest GPU first, NVML by PCI address, so number 0 is known only when opened."""
    assert len(visible(gpus("A", "B"), "0")) == 2
    assert visible(gpus("A", "B"), "-1") == ()
    assert [device.selector for device in visible(gpus("A", "B"), "GPU-1")] == ["cuda:1"]
