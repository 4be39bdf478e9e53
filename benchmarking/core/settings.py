"""Settings: everything that a user can choose, each declared once.

A `Setting` is an entry in the table of the part it belongs to: `benchmarking.core.shared_settings` (database, output),
`benchmarking.sweep.plan.measuring_settings` and `benchmarking.load.load_settings`; the options of a runtime are
declared by the runtime (`benchmarking.core.contracts.Option`). Flags with their help, keys of YAML lists, defaults,
the parameters of the Python interface, and refusals ("--turns requires --url") derive from these entries.
"""

from __future__ import annotations

import argparse
import functools
import inspect
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from benchmarking.core.argument_types import (
    MAX_NUMBER,
    MAX_SECONDS,
    database_file,
    dimension,
    file_to_write,
    folder_to_write,
    input_value,
    named_values,
    names,
    non_negative_int,
    non_negative_number,
    non_negative_seconds,
    positive_int,
    positive_ints,
    positive_number,
    positive_numbers,
    positive_seconds,
    share,
    tag,
)
from benchmarking.core.codec import is_number, is_whole
from benchmarking.core.command_line import PART_OF_LIST, add_aliases, choice
from benchmarking.core.errors import UsageError
from benchmarking.core.help_texts import IN_SERIES, few_need
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.plugins import GROQ, NO_GROQ
from benchmarking.core.suggestions import SIMILAR, named_by, nearest
from benchmarking.core.text import flag_of

if TYPE_CHECKING:
    from benchmarking.core.untrusted.input_files import Node

Function = TypeVar("Function", bound=Callable[..., Any])
NUMBERS = re.compile(r"\d[\d.]*(,\d[\d.]*)*,?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """The values that a setting takes, and how they are read."""

    metavar: str
    """Placeholder of one value in help texts."""
    python: str
    """Type of one value as a Python parameter."""
    parse: Callable[[str], Any]
    """Reads one value of the command line. Raises argparse.ArgumentTypeError."""
    check: Callable[[Any, str], Any]
    """Returns one value of a YAML file, given with its text there. Raises UsageError ("takes whole numbers from 1")."""
    parse_list: Callable[[str], tuple[Any, ...]] = names
    """Reads a list of the command line."""
    is_repeated: bool = False
    """Whether the flag is repeated for several values, each NAME=VALUE."""
    choices: tuple[str, ...] = ()
    """All values, if there are few."""
    is_sorted: bool = False
    """Whether the order of a list means nothing."""
    words: tuple[str, ...] = ()
    """Words that are values, if they cannot all be listed: of a list they may be separated by spaces."""

    def is_part_of_list(self, word: str) -> bool:
        """Whether a word after the values of a list can only be one more value, rather than a model."""
        if self.python in ("int", "float"):
            return NUMBERS.fullmatch(word) is not None
        known = (*self.choices, *self.words)
        parts = [part.partition(":")[0] for part in word.rstrip(",").split(",")]  # a device may have a number
        return all(part in known or named_by(part, known) for part in parts)

    def listed(self, key: str, node: Node) -> tuple[Any, ...]:
        """The values of a key of a YAML file: those of a list, or a single one. Raises UsageError with the place."""
        values = []
        for item in node.items():
            try:
                values.append(self.check(item.content, item.text))
            except UsageError as error:
                item.refuse(f"{key} {error}")
        if not values:
            node.refuse(f"{key} is an empty list: remove it, or give a value")
        if twice := [value for value in values if values.count(value) > 1]:
            node.refuse(f"{key} contains {twice[0]!r} twice: remove one")
        return tuple(values)


def _is_finite(value: Any) -> bool:
    return is_number(value) and abs(value) < float("inf")


def _whole_from(least: int) -> Callable[[Any, str], int]:
    def check(value: Any, text: str) -> int:
        if not is_whole(value) or value < least:
            raise UsageError(f"takes whole numbers from {least}: got {text}")
        return value

    return check


def _number(most: float, *, least: float | None = None) -> Callable[[Any, str], float]:
    """Numbers above 0, or from `least`."""
    limits = "above 0" if least is None else f"from {least:g}"

    def check(value: Any, text: str) -> float:
        fits = _is_finite(value) and (value > 0 if least is None else value >= least)
        if not fits:
            raise UsageError(f"takes numbers {limits}: got {text}")
        if value > most:
            raise UsageError(f"takes numbers {limits}, up to {most:g}: got {text}")
        return float(value) if isinstance(value, float) else value

    return check


def _check_word(value: Any, text: str) -> str:
    if value is None:
        raise UsageError('takes a word: got null (to get the word, write "null" in quotes)')
    if not isinstance(value, str) or not value.strip():
        raise UsageError(f"takes a word: got {text}")
    return value.strip()


def _check_text(value: Any, text: str) -> str:
    """A word as the flag takes it, which YAML may read as true, false or a number."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int) else _check_word(value, text)


def _check_switch(value: Any, text: str) -> bool:
    if not isinstance(value, bool):
        raise UsageError(f"takes true or false: got {text}")
    return value


def _check_tags(value: Any, text: str) -> dict[str, str]:
    if not isinstance(value, dict):
        raise UsageError(f"takes a mapping of words: got {text}")
    if unknown := [key for key, each in value.items() if each is None]:  # which is no label
        raise UsageError(f"takes a mapping of words: got None for {unknown[0]}")
    return {str(key): str(each) for key, each in value.items()}


def _check_mapping(what: str, fits: Callable[[Any], bool]) -> Callable[[Any, str], dict[str, Any]]:
    def check(value: Any, text: str) -> dict[str, Any]:
        if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
            raise UsageError(f"takes a mapping of names to {what}: got {text}")
        if wrong := [key for key, each in value.items() if not fits(each)]:
            raise UsageError(f"takes a mapping of names to {what}: got {value[wrong[0]]!r} for {wrong[0]}")
        return dict(value)

    return check


WHOLE = Kind(
    metavar="N", python="int", parse=positive_int, parse_list=positive_ints, check=_whole_from(1), is_sorted=True
)
"""Whole numbers from 1."""
COUNT = Kind(metavar="N", python="int", parse=non_negative_int, check=_whole_from(0))
"""Whole numbers from 0."""
NUMBER = Kind(
    metavar="X",
    python="float",
    parse=positive_number,
    parse_list=positive_numbers,
    check=_number(MAX_NUMBER),
    is_sorted=True,
)
"""Numbers above 0."""
NUMBER_FROM_0 = Kind(metavar="X", python="float", parse=non_negative_number, check=_number(MAX_NUMBER, least=0))
SHARE = Kind(metavar="X", python="float", parse=share, check=_number(1, least=0))
"""Shares from 0 to 1."""
SECONDS = Kind(metavar="S", python="float", parse=positive_seconds, check=_number(MAX_SECONDS))
"""Seconds above 0."""
SECONDS_FROM_0 = Kind(metavar="S", python="float", parse=non_negative_seconds, check=_number(MAX_SECONDS, least=0))
FOLDER = Kind(metavar="DIR", python="str", parse=folder_to_write, check=_check_word)
"""A folder that is written to."""
DATABASE = Kind(metavar="FILE", python="str", parse=database_file, check=_check_word)
WORD = Kind(metavar="NAME", python="str", parse=str, check=_check_word)
DIR, FILE = replace(WORD, metavar="DIR"), replace(WORD, metavar="FILE")
"""A folder, and a file, that is read."""
TEXT = Kind(metavar="TEXT", python="str", parse=str, check=_check_text)
LIMITS = replace(TEXT, metavar="LIMITS", is_repeated=True)
"""Limits as `benchmarking.core.shared_settings.parse_limits` reads them, joined by commas or repeated."""
SWITCH = Kind(metavar="", python="bool", parse=bool, check=_check_switch)
DIMENSIONS = Kind(
    metavar="NAME=N",
    python="Mapping[str, int | str]",
    parse=dimension,
    check=_check_mapping("sizes from 1, or batch", lambda size: size == "batch" or (type(size) is int and size >= 1)),
    is_repeated=True,
)
"""Sizes of dimensions by name."""
INPUT_VALUES = Kind(
    metavar="NAME=VALUE",
    python="Mapping[str, float]",
    parse=input_value,
    check=_check_mapping("numbers", _is_finite),
    is_repeated=True,
)
"""Numbers by name."""
SWEEP = Kind(
    metavar="NAME=V,V",
    python="Mapping[str, Sequence[str]]",
    parse=named_values,
    check=_check_mapping("lists of values", lambda values: isinstance(values, list | tuple)),
    is_repeated=True,
)
"""Values to sweep by name."""
PATH = Kind(metavar="FILE", python="Path", parse=Path, check=lambda value, text: Path(value))
NEW_FILE = replace(PATH, parse=file_to_write)
"""A file that is written, or "-" for stdout."""
TAGS = Kind(metavar="K=V", python="Mapping[str, str]", parse=tag, check=_check_tags, is_repeated=True)


def one_of(values: Iterable[str], what: str, *, read: Callable[[str], str] = str, python: str = "str") -> Kind:
    """One of a few words; `read` turns other spellings into them."""
    known = tuple(values)

    def parse_list(text: str) -> tuple[str, ...]:
        try:
            return tuple(choice(read(name), known, what) for name in names(text))
        except UsageError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return Kind(
        metavar="NAME",
        python=python,
        parse=read,
        check=lambda value, text: choice(read(_check_word(value, text)), known, what),
        parse_list=parse_list,
        choices=known,
    )


@dataclass(frozen=True, slots=True)
class Setting:
    """Something that a user can choose: a row of a table, whose first columns have no names there."""

    name: str
    """The attribute of parsed arguments, the key in YAML files, the Python parameter; the flag with `-` for `_`."""
    kind: Kind
    help: str
    """What it is, with its unit; the default is added."""
    _: KW_ONLY
    default: Any = None
    """Its value without the flag, or a function that finds it when the flag is declared."""
    default_words: str | None = None
    """The default in words, if it is not the value, or depends on something."""
    takes_list: bool = False
    """Whether commands of many combinations take a list of values."""
    plural: str | None = None
    """The name of a list of values, if it is another; commands read both flags, and show the one that fits."""
    metavar: str | None = None
    """Placeholder in help texts, if not that of the kind."""
    short_flag: str | None = None
    other_flags: tuple[str, ...] = ()
    """Earlier and other spellings of the flag, which help texts do not show."""
    is_rare: bool = False
    """Whether few people need it, so that only --help-all shows it."""
    is_key: bool = False
    """Whether it is a key in YAML lists of models."""
    in_series: bool = False
    """Whether results with different values are separate series; the options of runtimes all are."""
    field: str | None = None
    """The field of `Request` that holds it, if its name is another."""
    applies: frozenset[str] = frozenset()
    """What can be measured with it ("model", "bench", "script", "server"); empty for everything."""
    why_not: str = ""
    """Why it does not apply to anything else."""
    needs: tuple[tuple[str, str | None], ...] = ()
    """(setting, value): another setting that must be given, and its value; None for any."""
    excludes: tuple[str, ...] = ()
    """Settings that must not be given with it."""
    why_apart: str = "remove one of them"
    """Why not, or what to do instead."""

    def here(self, **changes: Any) -> Setting:
        """The setting as one command has it; another default is shown as it is, unless in words."""
        words: dict[str, Any] = {"default_words": None} if "default" in changes else {}
        return replace(self, **{**words, **changes})

    @property
    def flag(self) -> str:
        """The flag for one value: "--batch-size"."""
        return flag_of(self.name)

    @property
    def list_flag(self) -> str:
        """The flag for a list of values: "--batch-sizes"."""
        return flag_of(self.plural or self.name)

    @property
    def key(self) -> str:
        """The key in YAML lists, where every setting that can be a list is one."""
        return self.plural or self.name


def add_settings(
    group: argparse._ActionsContainer,
    settings: Mapping[str, Setting],
    *names_of_settings: str,
    lists: Iterable[str] = (),
) -> None:
    """Add the flags of the named settings, in this order: those in `lists` take a list of values."""
    add_flags(group, *(settings[name] for name in names_of_settings), lists=lists)


def add_flags(group: argparse._ActionsContainer, *settings: Setting, lists: Iterable[str] = ()) -> None:
    """Add the flags of settings, in this order: those in `lists` take a list of values."""
    several = set(lists)
    for setting in settings:
        name, kind, is_list = setting.name, setting.kind, setting.name in several
        default = setting.default() if callable(setting.default) else setting.default
        values = default if default is None or isinstance(default, tuple) else (default,)
        shown = setting.default_words
        if shown is None and values is not None and kind is not SWITCH and not kind.is_repeated:
            shown = ",".join(f"{one:g}" if isinstance(default, float) else str(one) for one in values)
        known = f": {', '.join(kind.choices)}" if kind.choices else ""
        text = f"{setting.help}{known}{f' (default: {shown})' if shown else ''}"
        flag = setting.list_flag if is_list else setting.flag
        words = [*filter(None, [setting.short_flag]), flag]
        about: dict[str, Any] = {"dest": setting.key if is_list else name, "help": text.replace("%", "%%")}
        metavar = setting.metavar or kind.metavar
        if kind is SWITCH:
            action = group.add_argument(*words, action="store_true", **about)
        elif kind.is_repeated:
            action = group.add_argument(*words, type=kind.parse, action="append", default=[], metavar=metavar, **about)
        elif is_list:
            metavar = f"{metavar[:1]},{metavar[:1]}"
            action = group.add_argument(
                *words, action=Values, type=kind.parse_list, default=values, metavar=metavar, **about
            )
            vars(action)["is_sorted"] = kind.is_sorted
        else:
            action = group.add_argument(
                *words, type=kind.parse, choices=kind.choices or None, default=default, metavar=metavar, **about
            )
        if setting.takes_list:
            vars(action)[PART_OF_LIST] = kind.is_part_of_list
        if setting.is_rare:
            few_need(action)
        if setting.in_series:
            vars(action)[IN_SERIES] = True
        both = {setting.flag, setting.list_flag} - {flag} if setting.plural else set()
        add_aliases(group, action, *sorted(both), *(other for other in setting.other_flags if other not in both))


class Values(argparse.Action):
    """Stores a list: a flag that is given again adds its values to those before."""

    is_sorted = False
    stored_in: argparse.Namespace | None = None

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option_string: Any = None
    ) -> None:
        before = getattr(namespace, self.dest) if self.stored_in is namespace else ()
        found = dict.fromkeys((*before, *values))
        self.stored_in = namespace
        setattr(namespace, self.dest, tuple(sorted(found)) if self.is_sorted else tuple(found))


def given(arguments: argparse.Namespace, setting: Setting) -> bool:
    """Whether a parsed command line has the setting with a value other than its default."""
    for name in (setting.name, setting.plural):
        if name is not None and hasattr(arguments, name):
            value = getattr(arguments, name)
            return value not in (None, setting.default, (setting.default,), [])
    return False


def check_given(
    arguments: argparse.Namespace,
    settings: Mapping[str, Setting],
    *,
    subject: str,
    instead: str,
) -> None:
    """Check what applies to what: raise UsageError for a setting that does not apply to `subject`, needs another or
    excludes another. `instead` is what applies, such as "--url"."""
    for setting in settings.values():
        if not given(arguments, setting):
            continue
        if setting.applies and subject not in setting.applies:
            why = f": {setting.why_not}" if setting.why_not else ""
            raise UsageError(f"{setting.flag} requires {instead}{why}")
        for name in setting.excludes:
            if given(arguments, settings[name]):
                raise UsageError(f"{setting.flag} and {settings[name].flag} exclude each other: {setting.why_apart}")
        missing = [
            f"{settings[name].flag} {value or settings[name].metavar or settings[name].kind.metavar}".rstrip()
            for name, value in setting.needs
            if (getattr(arguments, name, None) != value if value else not given(arguments, settings[name]))
        ]
        if missing:
            raise UsageError(f"{setting.flag} requires {' and '.join(missing)}")


def takes_settings(
    settings: Mapping[str, Setting],
    *names_of_settings: str,
    lists: Iterable[str] = (),
    defaults: Mapping[str, Any] | None = None,
) -> Callable[[Function], Function]:
    """Give a function with `**chosen` a keyword parameter for each of these settings: it gets all of them, with their
    defaults, checked as in a YAML file. Those in `lists` take one value or several; None is the default. `defaults` are
    what differs in this function. Calls raise UsageError for a wrong value and for those of Groq's compiler, and
    TypeError for an unknown name."""
    several, by_key = set(lists), dict[str, Setting]()
    for name in names_of_settings:
        setting = settings[name]
        by_key[setting.key if name in several else setting.field or name] = replace(
            setting,
            default=(defaults or {}).get(name, setting.default),
            takes_list=name in several and not setting.kind.is_repeated,  # which is one mapping
        )

    def decorated(function: Function) -> Function:
        signature = inspect.signature(function)
        own = [one for one in signature.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
        added = []
        for key, setting in by_key.items():
            kind, default = setting.kind.python, setting.default
            annotation = f"{kind} | Sequence[{kind}]" if setting.takes_list else kind
            annotation += "" if default is not None else " | None"
            keyword = inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
            added.append(keyword)

        @functools.wraps(function)
        def called(*arguments: Any, **given: Any) -> Any:
            known = {*by_key, *(parameter.name for parameter in own)}
            if unknown := [name for name in given if name not in known]:
                if unknown[0].startswith(GROQ):
                    raise UsageError(f"{unknown[0]}: {NO_GROQ}: remove it")
                near = nearest(unknown[0], known, number=1, similar=SIMILAR)
                hint = f": did you mean {near[0]!r}?" if near else ""
                raise TypeError(f"{function.__name__}() got an unexpected keyword argument {unknown[0]!r}{hint}")
            chosen = {key: _python_value(key, setting, given.pop(key, None)) for key, setting in by_key.items()}
            return function(*arguments, **given, **chosen)

        vars(called)["__signature__"] = signature.replace(parameters=[*own, *added])
        return called  # type: ignore[return-value]

    return decorated


def _python_value(key: str, setting: Setting, value: Any) -> Any:
    """The value of a parameter, or the default for None. Raises UsageError."""
    if value is None:
        return setting.default
    is_one = not setting.takes_list or isinstance(value, str | os.PathLike) or not isinstance(value, Iterable)
    try:
        values = [
            setting.kind.check(os.fspath(one) if isinstance(one, os.PathLike) else one, repr(one))
            for one in ((value,) if is_one else value)
        ]
    except UsageError as error:
        raise UsageError(f"{key} {error}") from error
    return tuple(values) if setting.takes_list else values[0]


def table(*entries: Setting, base: Mapping[str, Setting] = MappingProxyType({})) -> Mapping[str, Setting]:
    """The settings of `base`, and the entries, which replace theirs, by name. Raises ValueError for a name that is
    declared twice."""
    found = {entry.name: entry for entry in entries}
    if len(found) != len(entries):
        raise ValueError("a setting is declared twice")
    return MappingProxyType({**base, **found})
