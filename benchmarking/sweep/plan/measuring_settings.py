"""The settings of commands that measure models: model, device, grid, calls, builds; and the options of all
runtimes: their flags and YAML keys, and which requested options apply to which runtime.
"""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any, NoReturn

from benchmarking.builds.store import CACHE_VARIABLE
from benchmarking.core import plugins
from benchmarking.core.axes import AXES, Axis
from benchmarking.core.contracts import Option
from benchmarking.core.errors import UsageError
from benchmarking.core.help_texts import OPTIONS, few_need
from benchmarking.core.quality import TEXT_WINDOWS
from benchmarking.core.records import PRECISIONS, REBUILDS, WEIGHTS_CHOICES, Cell, Scalar, Workload, available
from benchmarking.core.settings import (
    COUNT,
    DIMENSIONS,
    FOLDER,
    INPUT_VALUES,
    NUMBER,
    SECONDS,
    SWITCH,
    TEXT,
    WHOLE,
    WORD,
    Setting,
    one_of,
    table,
)
from benchmarking.core.shared_settings import SHARED
from benchmarking.core.suggestions import unknown_name
from benchmarking.core.tables import Table, table_text
from benchmarking.core.terminal import stdout_page
from benchmarking.core.text import wrapped
from benchmarking.core.verdicts.launches import ROUNDS_TO_PROVE
from benchmarking.measure.context import DEFAULT_PROFILE, PROFILES, Settings, settings

DEFAULT_TIMEOUT_S = 600.0
"""Time limit for loading, and for each point of a launch."""
AUTO = "auto"
MODELS = frozenset({"model"})
MODELS_AND_BENCHES = frozenset({"model", "bench"})
BENCH_AXES = ("new_tokens",)
"""Axes that a command may set for user-written benchmarks too."""


GRAPH_INPUTS = ("dim", "input", "inputs")
"""What only the user knows about the inputs of a graph file."""


def of_axis(axis: Axis) -> Setting:
    """The setting of an axis of the grid, whose facts are in `benchmarking.core.axes`."""
    return Setting(
        axis.name,
        NUMBER if axis.kind is float else WHOLE,
        axis.help,
        takes_list=True,
        plural=None if axis.key == axis.name else axis.key,
        metavar="S" if axis.kind is float else None,
        default=axis.default,
        default_words=axis.default_words,
        other_flags=axis.other_flags,
        is_rare=not axis.is_field,
        is_key=True,
        in_series=True,
        applies=MODELS_AND_BENCHES if axis.name in BENCH_AXES else MODELS,
    )


_key = partial(Setting, is_key=True)
_of_cells = partial(_key, in_series=True, takes_list=True)
_of_models = partial(_key, is_rare=True, applies=MODELS)
_graph_input = partial(Setting, in_series=True, is_rare=True, applies=MODELS)

MEASURING = table(
    _of_models("task", WORD, "Hugging Face task name", in_series=True, metavar="TASK", default_words="the model's own"),
    _of_models(
        "weights",
        one_of(WEIGHTS_CHOICES, "kind of weights", python="WeightsChoice"),
        "weights; auto means pretrained if available, else seeded random ones",
        in_series=True,
        default="auto",
    ),
    _of_cells(
        "device",
        replace(WORD, words=(AUTO, *plugins.names(plugins.DEVICES))),
        f"{', '.join(plugins.names(plugins.DEVICES))} or auto; D:N for number N",
        plural="devices",
        metavar="D",
        default=AUTO,
    ),
    _of_cells(
        "runtime",
        replace(WORD, words=plugins.names(plugins.RUNTIMES)),
        "eager, compiled, onnxruntime, openvino, ... (see run --list-runtimes)",
        plural="runtimes",
        metavar="R",
        applies=frozenset({"model", "script"}),
    ),
    _of_cells(
        "precision",
        one_of(PRECISIONS, "precision", read=available, python="Precision"),
        "precision",
        plural="precisions",
        metavar="P",
        default="float32",
    ),
    _of_models(
        "num_threads", WHOLE, "intra-op threads", in_series=True, takes_list=True, default_words="the runtime's"
    ),
    _of_models(
        "cpu_list", TEXT, "logical CPUs to run on, such as 0-3,8", in_series=True, metavar="LIST", default_words="all"
    ),
    _graph_input(
        "dim",
        DIMENSIONS,
        "size of a free dimension of an ONNX or OpenVINO file, or batch; repeatable",
        default={},
        default_words="guessed, printed",
        field="dims",
    ),
    _graph_input(
        "input",
        INPUT_VALUES,
        "value of an input of such a file, as in sr=16000; repeatable",
        default={},
        default_words="random",
        field="input_values",
    ),
    _graph_input(
        "inputs", TEXT, ".npz file with whole inputs by name", metavar="FILE", default_words="none", field="inputs_file"
    ),
    *map(of_axis, AXES.values()),
    _key(
        "profile",
        one_of(PROFILES, "profile", python="ProfileName"),
        "measurement profile, from fastest to most precise",
        default=DEFAULT_PROFILE,
    ),
    Setting("iterations", WHOLE, "timed calls per launch", default_words="until precise", is_key=True),
    Setting("warmup_iterations", COUNT, "untimed calls before", default_words="until steady", is_key=True),
    _key(
        "launches",
        WHOLE,
        "fresh processes per point",
        default_words=", ".join(
            (*(f"{one.launches} {name}" for name, one in PROFILES.items()), f"{ROUNDS_TO_PROVE} to compare")
        ),
    ),
    _key(
        "cold_cache",
        SWITCH,
        "flush the device's last-level cache before each timed call",
        in_series=True,
        is_rare=True,
        default=False,
    ),
    _key("quality", SWITCH, "also measure quality against eager float32", default=False, applies=MODELS),
    _of_models(
        "quality_text",
        TEXT,
        "text file by which to measure the quality of text generation; implies --quality",
        metavar="FILE",
        default_words="public-domain prose in the package",
    ),
    _of_models(
        "quality_windows",
        WHOLE,
        "windows of that text, each of 64 tokens with a context of 64, or inputs of other tasks; implies --quality",
        default_words=str(TEXT_WINDOWS),
    ),
    _of_models(
        "quality_file",
        TEXT,
        "JSON Lines of prompts with an answer, and choices if any, to score too; implies --quality",
        metavar="FILE",
        default_words="none",
    ),
    _key(
        "timeout",
        SECONDS,
        "time limit in seconds for loading, and for each point of a launch",
        is_rare=True,
        default=DEFAULT_TIMEOUT_S,
        field="timeout_s",
    ),
    _key(
        "skip_unsupported",
        SWITCH,
        "record unsupported points as skipped, with the reason (default: refuse the run)",
        is_rare=True,
        default=False,
    ),
    Setting(
        "cache_dir",
        FOLDER,
        "folder of cached artifacts",
        is_rare=True,
        short_flag="-d",
        default_words=f"${CACHE_VARIABLE}, else the user's cache folder",
    ),
    _key(
        "rebuild",
        one_of(REBUILDS, "rebuild", python="Rebuild"),
        "when to rebuild cached artifacts: exports, engines and reference outputs",
        is_rare=True,
        default="if_needed",
        applies=frozenset({"model", "script"}),
    ),
    Setting(
        "lean_cache", SWITCH, "delete the artifacts built by this command when it ends", is_rare=True, default=False
    ),
    base=SHARED,
)
"""The settings of measuring commands, with those of all parts."""

CALLS = tuple(name for name in MEASURING if name in inspect.signature(settings).parameters)
"""How often and how long is measured: the settings that are parameters of `benchmarking.measure.context.settings`."""


QUALITY = ("quality", "quality_text", "quality_windows", "quality_file")


def measured_by(values: Mapping[str, Any]) -> Settings:
    """How often and how long is measured, and whether the quality is, by the names of `CALLS` and `QUALITY`; what is
    missing has its default. Raises UsageError for a text or file that cannot be read."""
    chosen = settings(**{name: values.get(name, MEASURING[name].default) for name in CALLS})
    quality, text, windows, file = map(values.get, QUALITY)
    if not quality and text is None and windows is None and file is None:
        return chosen
    from benchmarking.workloads.support.quality_inputs import quality_settings

    return replace(chosen, quality=quality_settings(text, windows, file))


@cache
def runtime_options() -> Mapping[str, Mapping[str, Option]]:
    """Every option with a flag: its name -> runtime -> the option as that runtime declares it."""
    by_name: dict[str, dict[str, Option]] = {}
    for runtime in plugins.runtimes():
        for option in runtime.declared_options:
            if option.has_flag:
                by_name.setdefault(option.name, {})[runtime.name] = option
    return by_name


def add_runtime_options(parser: argparse.ArgumentParser) -> None:
    """Add a flag for each option, in a group that --help-options shows, and that flag."""
    parser.add_argument(
        "--help-options", nargs="?", const="", metavar="RUNTIME", action=_HelpOptions, help=argparse.SUPPRESS
    )
    group = parser.add_argument_group(
        OPTIONS, "Runtimes that support an option are in brackets. Runs with different values are separate series."
    )
    few_need(group)
    for by_runtime in runtime_options().values():
        option = next(iter(by_runtime.values()))
        group.add_argument(option.flag, metavar="VALUE", help=help_text(by_runtime).replace("%", "%%"))


class _HelpOptions(argparse.Action):
    """Prints the options of the named runtime, or of all."""

    def __call__(self, parser: argparse.ArgumentParser, _: object, values: Any, *__: object) -> NoReturn:
        all_runtimes = plugins.runtimes()
        declared = {runtime.name: [one for one in runtime.declared_options if one.has_flag] for runtime in all_runtimes}
        values = next((runtime.name for runtime in all_runtimes if values in runtime.aliases), values)
        if values and values not in declared:
            parser.error(f"--help-options: {unknown_name(values, tuple(declared), 'runtime')}")
        for name, options in declared.items():
            if values in ("", name) and options:
                rows = tuple((option.flag, help_text({name: option}, with_runtimes=False)) for option in options)
                print(f"{name}:\n{table_text(Table(headings=('option', 'chooses'), rows=rows), stdout_page())}\n")
            elif values == name:
                about = plugins.runtime(name).about
                print(wrapped(f"{name}: no options" + (f"; {about}" if about else ""), stdout_page().text_width))
        parser.exit()


def help_text(by_runtime: Mapping[str, Option], *, with_runtimes: bool = True) -> str:
    """What an option chooses, and its values in each runtime, which brackets name unless there is only one."""
    by_values = runtimes_by_values(by_runtime)
    values = [f"{words} [{', '.join(names)}]" if with_runtimes else words for words, names in by_values.items()]
    separator = ": " if any(option.values for option in by_runtime.values()) else " "
    return f"{option_meaning(by_runtime)}{separator}{'; '.join(values)}".rstrip()


def option_meaning(by_runtime: Mapping[str, Option]) -> str:
    """What an option chooses, in the words of the runtimes that have it."""
    return "; ".join(dict.fromkeys(option.help for option in by_runtime.values()))


def runtimes_by_values(by_runtime: Mapping[str, Option]) -> dict[str, list[str]]:
    """The runtimes that have an option, by the values it takes there and their default, in words."""
    by_values: dict[str, list[str]] = {}
    for runtime, option in by_runtime.items():
        default = option.default or (option.values[0] if len(option.values) > 1 else None)
        listed = " or ".join(filter(None, (", ".join(option.values[:-1]), *option.values[-1:])))
        by_values.setdefault(" ".join(filter(None, (listed, default and f"(default: {default})"))), []).append(runtime)
    return by_values


def options_in(given: Mapping[str, Scalar | None]) -> dict[str, Scalar]:
    """The runtime options that are set among the given arguments or settings."""
    return {name: value for name in runtime_options() if (value := given.get(name)) is not None}


def options_of(runtime: str, workload: Workload) -> tuple[str, ...]:
    """The names of a runtime's options for a workload; none for an unknown runtime."""
    if runtime not in plugins.names(plugins.RUNTIMES):
        return ()
    plugin = plugins.runtime(runtime)
    return tuple(option.name for option in plugin.options(workload))


def check_shared_options(options: frozenset[str], cells: Sequence[Cell]) -> None:
    """Raise UsageError for an option that none of the requested runtimes has."""
    options_by_runtime = {cell.runtime: options_of(cell.runtime, cell.workload) for cell in cells}
    for name in sorted(options):
        if not any(name in names for names in options_by_runtime.values()):
            has = "; ".join(
                f"{runtime} has {', '.join(names) or 'none'}" for runtime, names in options_by_runtime.items()
            )
            raise UsageError(f"none of these runtimes has an option {name}: {has}")
