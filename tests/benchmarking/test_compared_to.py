"""Measuring a stored run's command again, in turns: which ones can be."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from benchmarking import ab
from benchmarking.core.errors import UsageError
from benchmarking.core.records import Device
from benchmarking.devices.support import host as host_module
from benchmarking.devices.support import identity
from benchmarking.sweep.run.turns import HERE

ASKED = SimpleNamespace(compare_to="latest", db_path="a.duckdb")


@pytest.fixture
def stored(monkeypatch):
    """A function that makes these the runs that are stored; of this machine unless keys say otherwise."""
    host = host_module.host_facts()
    here = identity.hashed_keys(Device(type="cuda", selector="cuda", found=True, name="GPU"), host)
    monkeypatch.setattr(host_module, "host_facts", lambda: host)

    def store(*commands, **keys):
        runs = [{"run_id": "r", "command": command, "hashed_keys": {**here, **keys}} for command in commands]
        monkeypatch.setattr(ab, "stored_runs", lambda selection, db_path: runs)

    return store


def test_both_commands_are_run_without_the_flags_of_comparing(stored):
    stored("run_hardware_benchmark --model-id m --tag 'a=b c' --compare-to 01a1 --interleave")
    one, other = ab.arms(ASKED, ["--model-id", "n", "--interleave", "--compare-to=latest", "--quiet"])
    assert one.words == (*HERE, "--model-id", "m", "--tag", "a=b c")
    assert other.words == (*HERE, "--model-id", "n", "--quiet")


def test_another_device_of_this_machine_is_no_other_machine(stored):
    stored("run_hardware_benchmark --model-id m", device_name="another", device_type="cpu")
    assert ab.arms(ASKED, ["--model-id", "m"])


@pytest.mark.parametrize(
    ("commands", "keys", "said"),
    [
        (["batch_benchmark --models a,b"], {}, "only what run_hardware_benchmark measured can be repeated"),
        ([""], {}, "only what run_hardware_benchmark measured can be repeated"),
        (["run_hardware_benchmark --a", "run_hardware_benchmark --b"], {}, "2 commands made these runs: name one"),
        (["run_hardware_benchmark"], {"cpu_model": "Other 1"}, 'another machine .cpu_model: "Other 1" / '),
    ],
)
def test_what_cannot_be_measured_again_here_is_refused(stored, commands, keys, said):
    stored(*commands, **keys)
    with pytest.raises(UsageError, match=said):
        ab.arms(ASKED, [])
