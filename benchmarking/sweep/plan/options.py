"""The options of all runtimes: their flags and YAML keys, and which requested options apply to which runtime."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NoReturn

from benchmarking.core import plugins
from benchmarking.core.contracts import Option, Runtime
from benchmarking.core.errors import UsageError
from benchmarking.core.help_texts import OPTIONS, few_need
from benchmarking.core.records import Cell, Scalar, Workload
from benchmarking.core.suggestions import unknown_name
from benchmarking.core.tables import Table, table_text
from benchmarking.core.terminal import stdout_page

RUNTIMES = "benchmarking.runtimes"


@cache
def runtime_options() -> Mapping[str, Mapping[str, Option]]:
    """Every option with a flag: its name -> runtime -> the option as that runtime declares it."""
    by_name: dict[str, dict[str, Option]] = {}
    for runtime in runtimes():
        for option in runtime.declared_options:
            if option.has_flag:
                by_name.setdefault(option.name, {})[runtime.name] = option
    return by_name


def runtimes() -> list[Runtime]:
    """Every runtime, the default one first."""
    loaded: list[Runtime] = [plugins.load(RUNTIMES, name) for name in plugins.names(RUNTIMES)]
    return sorted(loaded, key=lambda runtime: not runtime.is_default)


def add_runtime_options(parser: argparse.ArgumentParser) -> None:
    """Add a flag for each option, in a group that --help-options shows, and that flag."""
    parser.add_argument(
        "--help-options", nargs="?", const="", metavar="RUNTIME", action=_HelpOptions, help=argparse.SUPPRESS
    )
    group = parser.add_argument_group(
        OPTIONS,
        "Runtimes that support an option are in brackets. Runs with different values are separate series.",
    )
    few_need(group)
    for by_runtime in runtime_options().values():
        option = next(iter(by_runtime.values()))
        group.add_argument(option.flag, metavar="VALUE", help=help_text(by_runtime))


class _HelpOptions(argparse.Action):
    """Prints the options of the named runtime, or of all."""

    def __call__(self, parser: argparse.ArgumentParser, _: object, values: Any, *__: object) -> NoReturn:
        declared = {runtime.name: [one for one in runtime.declared_options if one.has_flag] for runtime in runtimes()}
        if values and values not in declared:
            parser.error(f"--help-options: {unknown_name(values, tuple(declared), 'runtime')}")
        for name, options in declared.items():
            if values in ("", name) and options:
                rows = tuple((option.flag, " ".join([option.help, option.values_in_words])) for option in options)
                print(f"{name}:\n{table_text(Table(headings=('option', 'chooses'), rows=rows), stdout_page())}\n")
            elif values == name:
                print(f"{name}: no options")
        parser.exit()


def help_text(by_runtime: Mapping[str, Option]) -> str:
    """The help of a flag: what it chooses, and its values in each runtime."""
    values = (f"{words} [{', '.join(names)}]" for words, names in runtimes_by_values(by_runtime).items())
    separator = ": " if any(option.values for option in by_runtime.values()) else " "
    return f"{option_meaning(by_runtime)}{separator}{'; '.join(values)}".replace("%", "%%")


def option_meaning(by_runtime: Mapping[str, Option]) -> str:
    """What an option chooses, in the words of the runtimes that have it."""
    return "; ".join(dict.fromkeys(option.help for option in by_runtime.values()))


def runtimes_by_values(by_runtime: Mapping[str, Option]) -> dict[str, list[str]]:
    """The runtimes that have an option, by the values it takes there and their default, in words."""
    by_values: dict[str, list[str]] = {}
    for runtime, option in by_runtime.items():
        by_values.setdefault(option.values_in_words, []).append(runtime)
    return by_values


def options_in(given: Mapping[str, Scalar | None]) -> dict[str, Scalar]:
    """The runtime options that are set among the given arguments or settings."""
    return {name: value for name in runtime_options() if (value := given.get(name)) is not None}


def options_of(runtime: str, workload: Workload) -> tuple[str, ...]:
    """The names of a runtime's options for a workload; none for an unknown runtime."""
    if runtime not in plugins.names(RUNTIMES):
        return ()
    plugin: Runtime = plugins.load(RUNTIMES, runtime)
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
