"""One suite for all runtimes, with every family and every device found here, without measuring."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from benchmarking.core import plugins
from benchmarking.core.contracts import Runtime
from benchmarking.core.errors import UsageError
from benchmarking.core.plugins import family_names
from benchmarking.core.records import PRECISIONS, Device, Workload
from benchmarking.devices.support.select import probe_all
from benchmarking.sweep.plan.measuring_settings import help_text, runtime_options
from tests.docs import support_table

PACKAGE = "benchmarking.runtimes"
NAMES = plugins.names(PACKAGE)
FURTHER_SETTINGS = {"bench": {"timed_by"}}
"""Settings that distinguish series but have no option, by runtime: the class of a bench determines who times calls."""


@pytest.fixture(params=NAMES)
def runtime(request: pytest.FixtureRequest) -> Any:
    return plugins.load(PACKAGE, request.param)


@pytest.fixture(scope="module")
def workloads() -> Mapping[str, Workload]:
    """One tiny model of each family."""
    return {family: models[-1] for family, models in support_table.tiny_models_by_family().items()}


@pytest.fixture(scope="module")
def devices() -> list[Device]:
    """Every device that is found here, and the null device."""
    found = [device for devices in probe_all().values() for device in devices if device.found]
    (null,) = plugins.load("benchmarking.devices", "null").probe()
    return [*found, null]


def pairs(devices: list[Device], workloads: Mapping[str, Workload]) -> Iterator[tuple[Device, Workload]]:
    for device in devices:
        for workload in workloads.values():
            yield device, workload


def test_file_and_runtime_have_the_same_name(runtime: Any) -> None:
    assert runtime.name in NAMES
    assert plugins.load(PACKAGE, runtime.name) is runtime


def test_what_is_missing_has_an_install_command(runtime: Any) -> None:
    missing = runtime.missing()
    assert missing is None or "install" in missing


def test_every_pair_is_supported_or_has_a_reason(
    runtime: Any, devices: list[Device], workloads: Mapping[str, Workload]
) -> None:
    if runtime.missing() is not None:
        pytest.skip(f"{runtime.name}: {runtime.missing()}")
    for device, workload in pairs(devices, workloads):
        for precision in PRECISIONS:
            why = runtime.supports(device, workload, precision)
            assert why is None or len(why.split()) >= 4, (runtime.name, device.selector, workload.family, precision)
            assert why is None or "None" not in why.split()


def test_a_supported_pair_has_default_settings(
    runtime: Any, devices: list[Device], workloads: Mapping[str, Workload]
) -> None:
    if (why_not := runtime.missing() or runtime.unusable()) is not None:
        pytest.skip(f"{runtime.name}: {why_not}")
    for device, workload in pairs(devices, workloads):
        if runtime.supports(device, workload, "float32") is None:
            mode = runtime.mode(device, workload, {})
            assert all(isinstance(value, bool | int | float | str) for value in mode.values())


def test_accepted_and_declared_options_are_equal(runtime: Any, workloads: Mapping[str, Workload]) -> None:
    declared = {option.name for option in runtime.declared_options}
    assert len(declared) == len(runtime.declared_options)
    assert {option.name for workload in workloads.values() for option in runtime.options(workload)} == declared
    for device in support_table.DEVICES:
        for workload in workloads.values():
            assert {option.name for option in runtime.options(workload, device)} <= declared


def test_settings_name_declared_options_only(
    runtime: Any, devices: list[Device], workloads: Mapping[str, Workload]
) -> None:
    if (why_not := runtime.missing() or runtime.unusable()) is not None:
        pytest.skip(f"{runtime.name}: {why_not}")
    known = {option.name for option in runtime.declared_options} | FURTHER_SETTINGS.get(runtime.name, set())
    for device, workload in pairs(devices, workloads):
        for precision in PRECISIONS:
            if runtime.supports(device, workload, precision) is None:
                assert set(runtime.mode_at(precision, runtime.mode(device, workload, {}))) <= known


def test_options_have_flags_with_help_that_names_the_runtime(runtime: Any) -> None:
    for option in runtime.declared_options:
        by_runtime = runtime_options().get(option.name, {})
        assert (by_runtime.get(runtime.name) == option) == option.has_flag
        assert not option.has_flag or runtime.name in help_text(by_runtime)


def test_unknown_option_values_are_errors_with_the_known_ones(runtime: Any, workloads: Mapping[str, Workload]) -> None:
    for workload in workloads.values():
        for option in runtime.options(workload):
            if option.values:
                with pytest.raises(
                    UsageError, match=f"{option.name} 'colour': runtime {runtime.name} has .*{option.values[0]}"
                ):
                    option.chosen(runtime.name, "colour")


def test_unknown_options_are_errors(runtime: Any, workloads: Mapping[str, Workload]) -> None:
    for workload in workloads.values():
        with pytest.raises(UsageError, match="colour"):
            runtime.mode(support_table.DEVICES[0], workload, {"colour": "red"})


def test_optional_parts_of_the_contract_are_complete(runtime: Any) -> None:
    assert isinstance(runtime.is_compared, bool)
    assert isinstance(runtime.point_per_process, bool)
    assert isinstance(runtime, Runtime)
    assert (type(runtime).prepare is not Runtime.prepare) == runtime.prepares
    assert (type(runtime).runs_at_once is not Runtime.runs_at_once) == (runtime.concurrency_flag is not None)
    assert all(isinstance(name, str) for name in runtime.packages)


def test_every_family_and_every_runtime_is_in_the_table() -> None:
    families, precisions, notes, options = support_table.table_text().split("\n\n")
    flags = [line.split(" | ")[0].strip("| ") for line in options.splitlines()[2:]]
    assert flags == [f"`--{name.replace('_', '-')}`" for name in runtime_options()]
    assert [line.split(" | ")[0].strip("| ") for line in families.splitlines()[2:]] == list(family_names())
    rows = [line.split(" | ")[0].strip("| ") for line in precisions.splitlines()[2:]]
    assert sorted(rows) == sorted(name for name in NAMES if plugins.load(PACKAGE, name).is_compared)
    assert rows[0] == "eager"
    numbers = {int(part) for part in "".join(c if c.isdigit() else " " for c in marks(families + precisions)).split()}
    assert numbers == set(range(1, len(notes.splitlines()) + 1))


def marks(text: str) -> str:
    return " ".join(part.split("</sup>")[0] for part in text.split("<sup>")[1:])


def test_the_table_does_not_depend_on_what_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = support_table.table_text()

    def absent(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(metadata, "distribution", absent)
    assert support_table.table_text() == expected


def test_reasons_that_differ_only_in_a_name_share_a_note() -> None:
    cpu, cuda = support_table.DEVICES[:2]
    notes = support_table.Notes()

    def mark(text: str, precision: str, device: Device, model_type: str = "gpt2") -> str:
        return notes.mark([support_table.Reason.of(text, precision, device, "fill-mask", model_type)])

    assert mark("x has float32, not int8, not on cpu", "int8", cpu) == " <sup>1</sup>"
    assert mark("x has float32, not int4, not on cuda", "int4", cuda) == " <sup>1</sup>"
    assert mark("a | b <c>", "int4", cuda) == " <sup>2</sup>"
    assert mark("y is built for gpt2, not for t5", "int4", cuda, "t5") == " <sup>3</sup>"
    assert mark("y is built for gpt2, not for bert", "int4", cuda, "bert") == " <sup>3</sup>"
    assert notes.lines() == [
        "1. x has float32, not int8 or int4, not on cpu or cuda",
        "2. a \\| b &lt;c>",
        "3. y is built for gpt2, not for t5 or bert",
    ]
    assert notes.mark([]) == ""


def test_partially_supported_families_list_unsupported_models() -> None:
    """Of the two tiny models of decoders, mlx runs Llama only."""
    families, _, notes, _ = support_table.table_text().split("\n\n")
    runtimes = families.splitlines()[0].split(" | ")
    (row,) = (line.split(" | ") for line in families.splitlines() if line.startswith("| decoder-only |"))
    word, _, number = row[runtimes.index("mlx")].partition(" <sup>")
    assert word == "yes"
    assert "gpt2" in notes.splitlines()[int(number.removesuffix("</sup>")) - 1]


def test_the_page_contains_the_current_table() -> None:
    assert support_table.between_markers(support_table.PAGE.read_text(encoding="utf-8")) == support_table.table_text()


def test_writing_the_table_keeps_the_rest_of_the_file(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n\n{support_table.START}\nold\n{support_table.END}\n\nafter\n")
    support_table.write(page)
    assert page.read_text() == (
        f"before\n\n{support_table.START}\n{support_table.table_text()}\n{support_table.END}\n\nafter\n"
    )
    page.write_text("no markers")
    with pytest.raises(ValueError, match=support_table.START):
        support_table.write(page)
    assert page.read_text() == "no markers"


def test_runtimes_refuse_foreign_devices(workloads: Mapping[str, Workload]) -> None:
    """A runtime that takes every device would make the suite above pass without a reason anywhere."""
    null = Device(type="null", selector="null", found=True, precisions=PRECISIONS)
    for name in NAMES:
        if name not in ("null", "bench"):
            assert plugins.load(PACKAGE, name).supports(null, workloads["encoder-only"], "float32") is not None
