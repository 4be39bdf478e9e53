"""Single values, and the reasons for unreadable ones."""

import os
import sys

import pytest

from benchmarking.devices.support import system_values
from benchmarking.devices.support.system_values import UnreadableError, gather, read_int, read_text, run_command


def test_gather_keeps_values_and_reasons_apart():
    def refuse():
        raise UnreadableError("no_permission: /x")

    readings = gather(
        {"clock_hz": lambda: 1, "power_w": refuse, "fans": lambda: os.listdir("/absent"), "n": lambda: int("")}
    )
    assert readings.values == {"clock_hz": 1}
    assert readings.missing == {
        "power_w": "no_permission: /x",
        "fans": "failed: [Errno 2] No such file or directory: '/absent'",
        "n": "failed: invalid literal for int() with base 10: ''",
    }


def test_absent_file_is_not_supported_and_named(tmp_path):
    with pytest.raises(UnreadableError, match=f"^not_supported: no {tmp_path}/x$"):
        read_text(tmp_path / "x")


def test_forbidden_file_is_no_permission_and_named(monkeypatch, tmp_path):
    def refuse(self, **_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(system_values.Path, "read_text", refuse)
    with pytest.raises(UnreadableError, match=f"^no_permission: {tmp_path}/x$"):
        read_text(tmp_path / "x")


def test_sensor_that_fails_is_failed_with_the_systems_word(tmp_path):
    with pytest.raises(UnreadableError, match=r"^failed: .*Is a directory"):
        read_text(tmp_path)


def test_non_numeric_text_is_shown(plant):
    root = plant({"x": "abc"})
    with pytest.raises(UnreadableError, match="holds 'abc', not a number"):
        read_int(root / "x")


def test_numbers_are_read_in_hex_too(plant):
    assert read_int(plant({"x": "0x10"}) / "x") == 16


def test_command_gives_its_output():
    assert run_command([sys.executable, "-c", "print('fine')"]) == "fine\n"


def test_missing_command_is_not_supported():
    with pytest.raises(UnreadableError, match=r"^not_supported: no command /nowhere/sysctl"):
        run_command(["/nowhere/sysctl"])


def test_failing_command_has_its_last_line():
    with pytest.raises(UnreadableError, match=r"^failed: .*: no such oid$"):
        run_command([sys.executable, "-c", "import sys; sys.exit('first\\nno such oid')"])


def test_hanging_command_is_stopped(monkeypatch):
    monkeypatch.setattr(system_values, "COMMAND_LIMIT_S", 0.2)
    with pytest.raises(UnreadableError, match=r"took more than 0.2 s"):
        run_command([sys.executable, "-c", "import time; time.sleep(60)"])
