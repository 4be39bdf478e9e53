"""The recorder of amdsmi and torch, whose recordings the tests replay."""

from __future__ import annotations

import importlib.util
import json
import sys
from types import ModuleType, SimpleNamespace

import pytest

from benchmarking.devices.support import amd
from tests.helpers.paths import FIXTURES
from tests.helpers.vendors import FakeTorch, RecordedAmdSmi

SCRIPT = FIXTURES / "devices" / "record_amdsmi.py"


@pytest.fixture
def recorder() -> ModuleType:
    spec = importlib.util.spec_from_file_location("record_amdsmi", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_recording_a_recording_is_idempotent_but_for_names(recorder, amdsmi):
    recorded = RecordedAmdSmi(json.loads(json.dumps(recorder.record(amdsmi))))
    facts, states = [], []
    for module in (amdsmi, recorded):
        smi = amd.AmdSmi(module)
        facts.append(amd.handle_facts(smi, "handle"))
        states.append(amd.AmdSmiMonitor(smi, "0000:c1:00", own_pid=1).state())
    named = {"uuid"}
    assert {k: v for k, v in facts[0].values.items() if k not in named} == {
        k: v for k, v in facts[1].values.items() if k not in named
    }
    assert (facts[0].missing, states[0].missing) == (facts[1].missing, states[1].missing)
    assert states[0].values["throttle_counters"] == states[1].values["throttle_counters"]
    assert recorded.recording["amdsmi_get_temp_metric"]["1"] == 47
    text = json.dumps(recorded.recording)
    assert "348A2B8F6C1D5E00" not in text
    assert "8034-8a2b8f6c1d5e" not in text


def test_torchs_properties_of_each_gpu_are_recorded_without_its_uuid(recorder):
    gpu = SimpleNamespace(name="AMD Instinct MI300X", major=9, uuid="33343861", gcnArchName="gfx942:sramecc+:xnack-")
    found = recorder.record_torch(FakeTorch([gpu]))
    assert found["devices"] == [{**vars(gpu), "uuid": recorder.UUID}]
    assert found["torch"] == "2.13.0+fake"


def test_without_the_library_the_reason_is_one_line_and_torchs_part_is_written(recorder, monkeypatch, tmp_path, capsys):
    def refuse():
        raise amd.AmdSmiError("package amdsmi is missing")

    monkeypatch.setattr(amd, "load_module", refuse)
    monkeypatch.setitem(sys.modules, "torch", FakeTorch([]))
    assert recorder.main([str(tmp_path / "amdsmi.json"), str(tmp_path / "torch.json")]) == 1
    assert capsys.readouterr().err == "record_amdsmi: package amdsmi is missing\n"
    assert json.loads((tmp_path / "torch.json").read_text())["devices"] == []
    assert not (tmp_path / "amdsmi.json").exists()
