"""Shared by all commands: one-line errors, exit codes, and argparse types."""

from __future__ import annotations

import argparse
import errno
import math
import os
import re
import signal
import sys
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from functools import wraps
from importlib.abc import MetaPathFinder
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import Any, NoReturn

from benchmarking.core.command_names import running, shown_name
from benchmarking.core.errors import (
    EXIT_FAILED,
    EXIT_USAGE,
    BenchhouseError,
    Interrupted,
    UsageError,
    out_of_memory_line,
    require_address_space,
)
from benchmarking.core.foreign_flags import other_words
from benchmarking.core.help_texts import help_text
from benchmarking.core.signals import signals_interrupt
from benchmarking.core.suggestions import (
    ASSIGNMENT,
    stray_word,
    switch_value,
    unexpected_argument,
    unknown_flag,
    unknown_name,
    value_elsewhere,
)
from benchmarking.core.terminal import guarded_streams, unguarded
from benchmarking.core.text import visible
from benchmarking.core.untrusted.redaction import know_secrets_in, without_secrets

PLACE_ERRORS = {
    errno.EROFS: "choose another path",
    errno.EACCES: "choose another path, or change its permissions",
    errno.EPERM: "choose another path, or change its permissions",
    errno.ENOSPC: "free some space, or choose another path",
    errno.EDQUOT: "free some space, or choose another path",
    errno.ENAMETOOLONG: "choose a shorter path",
    errno.ELOOP: "choose another path",
}
"""OS errors that are caused by the user's machine rather than by a bug -> what to do."""

LOOP = "Symlink loop"
"""How the error of `Path.resolve` for a loop of links begins, before Python 3.13."""

MAX_MESSAGE_LENGTH = 10_000
"""Maximum characters of an error message: enough for lists of all known names."""
MAX_VALUE_LENGTH = 200
"""Maximum characters of a value in an error message: an argument, or a word without spaces."""
LONG_WORD = re.compile(rf"\S{{{MAX_VALUE_LENGTH + 1},}}")

MAX_INT = 2**31 - 1
"""Maximum of whole numbers in run files."""
MAX_NUMBER = 1e15
MAX_SECONDS = 1e9
"""Maximum of other numbers: longer times are not accepted by every system."""

DURATION = re.compile(
    r"(\d+(?:\.\d+)?)\s*(ms|s(?:ec(?:ond)?s?)?|m(?:in(?:ute)?s?)?|h(?:ours?|rs?)?|d(?:ays?)?)(?![a-z])\s*"
)
THOUSANDS = re.compile(r"\d+(\.\d+)?[kKmM]i?")
SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400}
"""Unit of a duration -> seconds; longer words for one begin with its letter."""

DEFAULT_DATABASE = "benchmark_db.duckdb"


PART_OF_LIST = "is_part_of_list"
"""The attribute of a flag that takes a list, if only in other commands: whether a word after its values, separated by a
space, is one more."""
FLAG = re.compile(r"--?[A-Za-z][^\s=]*")
"""A word that can only be a flag: not a negative number, and not a text with spaces."""
LIMIT = re.compile(r"[a-z0-9_]+:\d[\w.]*")
"""A limit that has become an argument of its own."""
NUMBERS = re.compile(r"\d+(,\d+)+")
_LONG_ARGUMENTS: ContextVar[tuple[str, ...]] = ContextVar("long_arguments", default=())
"""Arguments of the running command that are too long for an error message, as messages contain them."""


class Parser(argparse.ArgumentParser):
    """An argument parser that takes no abbreviations, and reports a usage error in one line with what was meant."""

    def __init__(self, *, prog: str, details: str = "", **settings: Any) -> None:
        """`details` is text that only --help-all shows."""
        settings.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(prog=shown_name(prog), allow_abbrev=False, add_help=False, **settings)
        self.details = details
        self._words: list[str] = []
        self.add_argument("-h", "--help", action="help", help=argparse.SUPPRESS)
        self.add_argument("--help-all", action=_HelpAll, help=argparse.SUPPRESS)

    def format_help(self) -> str:
        """The flags that most people need."""
        return help_text(self, everything=False)

    def format_full_help(self) -> str:
        """All flags."""
        return help_text(self, everything=True, details=self.details)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse unknown flags here, before missing arguments, and in the subcommand that they were given to."""
        self._words = words = self._lists_joined(list(sys.argv[1:] if args is None else args))
        has_actions = any(isinstance(action, argparse._SubParsersAction) for action in self._actions)
        if not has_actions:
            self._check_flags(words)
            self._note_repeated(words)
            if self._selection == "":
                for before, word in pairwise(words):
                    if before == "--json" and word.endswith(".json") and "=" not in word:  # else a selection
                        self.error(str(stray_word(word, before, self._option_string_actions)))
        elif words and words[0].startswith("-") and words[0].partition("=")[0] not in self._option_string_actions:
            actions = next(one.choices for one in self._actions if isinstance(one, argparse._SubParsersAction))
            self.error(f"{words[0]}: the action comes first: {', '.join(map(str, actions))}")
        found, rest = super().parse_known_args(words, namespace)
        if any(isinstance(one, _OneModel) and one.is_needed for one in self._actions) and found.model_id is None:
            self.error("MODEL is missing: name a model on the Hugging Face hub, a folder, or a model of the catalog")
        if rest:
            self._check_flags(rest)
            self.error(self._unexpected(rest[0]))
        return found, rest

    def _lists_joined(self, words: Sequence[str]) -> list[str]:
        """The words with the values of a list as one word, as the flag takes them: `--batch-sizes 1 2 4` becomes
        `--batch-sizes 1,2,4`. Only what cannot be a model or another argument is joined."""
        joined: list[str] = []
        is_more: Callable[[str], bool] | None = None
        start = 0
        for index, word in enumerate(words):
            if word == "--":
                return [*joined, *words[index:]]
            if word.startswith("--"):
                is_more, start = getattr(self._option_string_actions.get(word), PART_OF_LIST, None), len(joined) + 1
            elif is_more is not None and len(joined) > start:
                if is_more(word):
                    joined[-1] = f"{joined[-1].rstrip(',')},{word}"
                    continue
                is_more = None
            joined.append(word)
        return joined

    def error(self, message: str) -> NoReturn:
        if of_switch := re.search(r"(--[\w-]+): ignored explicit argument '(.*)'", message):
            message = f"argument {of_switch[1]}: {switch_value(of_switch[1], of_switch[2])}"
        named = re.match(r"argument (?:-\w/)?(--[\w-]+): ", message)
        if named is not None:  # the flag as it was typed, which may be another spelling
            action = self._option_string_actions.get(named[1])
            typed = {word.partition("=")[0] for word in self._words}
            spellings = [flag for flag in typed if self._option_string_actions.get(flag) is action]
            if len(spellings) == 1 and action is not None and spellings[0].startswith("--"):
                message = message.replace(named[1], spellings[0], 1)
        self.exit(EXIT_USAGE, f"{self.prog}: error: {clipped(visible(one_line(message)))} (see {self.prog} --help)\n")

    def _print_message(self, message: str, file: Any = None) -> None:
        """Write a text; help that could not be written is an error, which argparse ignores. Help is not looked through
        for secrets, since it has no value of a user, and the patterns take longer than all of it."""
        if file is not sys.stdout:
            super()._print_message(message, file)
            return
        help_stream = unguarded(sys.stdout)
        help_stream.write(message)
        help_stream.flush()

    def _check_flags(self, words: Sequence[str]) -> None:
        for word, following in zip_longest(words, words[1:], fillvalue=""):
            if word == "--":
                return
            flag, _, value = word.partition("=")
            if not FLAG.fullmatch(flag) or flag in self._option_string_actions:
                continue
            is_whole = flag.startswith("--") or flag in other_words()
            short = None if is_whole else self._option_string_actions.get(flag[:2])
            if getattr(short, "nargs", 0) != 0:
                continue  # -dDIR
            arguments = [str(action.metavar) for action in self._actions if not action.option_strings]
            self.error(
                unknown_flag(
                    flag,
                    self._shown_flags(),
                    selection=self._selection,
                    arguments=arguments,
                    values=self._taken_words(),
                    value=value or following,
                )
            )

    def _note_repeated(self, words: Sequence[str]) -> None:
        """Say which value counts of a flag with several where one is taken: the last. Not of a turn: what measures in
        turns adds its words to the user's."""
        if "--turn" in self._option_string_actions and any(word.partition("=")[0] == "--turn" for word in words):
            return
        given: dict[int, str] = {}
        rest = iter(words)
        for word in rest:
            if word == "--":
                return
            flag, equals, value = word.partition("=")
            action = self._option_string_actions.get(flag)
            if not isinstance(action, argparse._StoreAction | _OneModel) or action.nargs is not None:
                continue
            value = value if equals else next(rest, "")
            if given.get(id(action), value) != value:
                several = "; benchhouse batch takes several" if getattr(action, PART_OF_LIST, None) is not None else ""
                said = f"{self.prog}: {flag} is given twice: {value} is used, not {given[id(action)]}{several}"
                note(clipped(one_line(said)))
            given[id(action)] = value

    def _shown_flags(self) -> dict[str, str]:
        """Every spelling of a flag -> the one in the help; none for hidden flags."""
        return {
            spelling: action.option_strings[-1] if spelling not in action.option_strings else spelling
            for spelling, action in self._option_string_actions.items()
            if action.help != argparse.SUPPRESS or isinstance(action, _OneModel | argparse._HelpAction)
        }

    def _taken_words(self) -> dict[str, list[str]]:
        """Each flag that takes one of a few words -> the words."""
        return {
            action.option_strings[-1]: [str(one) for one in action.choices]
            for action in self._actions
            if action.option_strings and action.choices is not None and action.help != argparse.SUPPRESS
        }

    def _stray(self, word: str) -> str | None:
        """What a word that is no argument probably is."""
        before = self._words[max(0, self._words.index(word) - 1)] if word in self._words else ""
        return stray_word(word, before, self._option_string_actions)

    def _unexpected(self, word: str) -> str:
        """The message for an argument too many."""
        addresses = (
            one
            for before, one in zip(("", *self._words), self._words, strict=False)
            if "://" in one and not one.startswith("-") and not self._takes_value(before)
        )
        address = next(addresses, None)
        for each in (word, *([] if address is None or self._is_typed("--url") else [address])):
            if (stray := self._stray(each)) is not None:
                return stray
        if self._selection == "":
            return f"unexpected argument {word!r}: a selection is one word, with its fields joined by commas"
        if LIMIT.fullmatch(word) and self._is_typed("--limit"):
            return f"unexpected argument {word!r}: limits are one word, joined by commas: ttft:500ms,tpot:50ms"
        arguments = [str(action.metavar) for action in self._actions if not action.option_strings]
        before = self._words[: self._words.index(word)] if word in self._words else []
        of_list = getattr(self._option_string_actions.get("".join(before[-2:-1])), PART_OF_LIST, None) is not None
        joined = f"a list is one word, as in {before[-2]} {before[-1]},{word}" if of_list and word else ""
        if joined and word[0].isdigit():
            return f"unexpected argument {word!r}: {joined}"
        return "; ".join(filter(None, (unexpected_argument(word, self._words, arguments), joined)))

    def _takes_value(self, word: str) -> bool:
        """Whether a word is a flag whose value follows it."""
        action = self._option_string_actions.get(word)
        return action is not None and action.nargs != 0

    def _is_typed(self, flag: str) -> bool:
        """Whether the words have this flag, in any of its spellings."""
        action = self._option_string_actions.get(flag)
        typed = (self._option_string_actions.get(word.partition("=")[0]) for word in self._words)
        return action is not None and any(one is action for one in typed)

    @property
    def _selection(self) -> str | None:
        """What precedes a selection of results: its flag, or nothing; None if the command takes none."""
        takes = next((action for action in self._actions if action.metavar == "SELECTION"), None)
        return None if takes is None else "".join(takes.option_strings[:1])

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            what = "action" if isinstance(action, argparse._SubParsersAction) else "value"
            if "://" in str(value) and "--url" in self._option_string_actions:
                raise argparse.ArgumentError(action, f"takes no address: got {value}: that is --url")
            if (elsewhere := value_elsewhere(action.option_strings, str(value))) is not None:
                raise argparse.ArgumentError(action, elsewhere)
            raise argparse.ArgumentError(action, unknown_name(str(value), [str(one) for one in action.choices], what))


class _OneModel(argparse.Action):
    """Stores the model, given as an argument or by its flag, but not two different ones; a repeated flag replaces its
    earlier value, as any flag does."""

    is_needed = False
    stored: tuple[argparse.Namespace, str] | None = None
    """Where this action stored a model last, and which."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        present = getattr(namespace, self.dest, None)
        if values is None:
            return
        if LIMIT.fullmatch(values) and "--limit" in parser._option_string_actions and not os.path.exists(values):
            parser.error(f"{values!r} is no model: limits are one word, joined by commas: ttft:500ms,tpot:50ms")
        if ASSIGNMENT.match(values) and not os.path.exists(values):
            parser.error(f"{values!r} is no model: each setting is a flag, such as --device cpu")
        is_own = self.stored is not None and self.stored[0] is namespace and self.stored[1] == present
        if present not in (None, values) and not is_own:
            assert isinstance(parser, Parser)
            parser.error(
                parser._stray(values) or parser._stray(present) or f"two models, {present} and {values}: give one"
            )
        self.stored = (namespace, values)
        setattr(namespace, self.dest, values)


def add_model_id(group: argparse._ActionsContainer, what: str, *, is_needed: bool = True) -> None:
    """The model of a command, as its first argument or as --model-id."""
    first = group.add_argument(
        "model_id", nargs="?", action=_OneModel, metavar="MODEL", help=f"{what}; also --model-id MODEL"
    )
    assert isinstance(first, _OneModel)
    first.is_needed = is_needed
    flag = group.add_argument("--model-id", action=_OneModel, metavar="MODEL", help=argparse.SUPPRESS)
    add_aliases(group, flag, "--model")


class _HelpAll(argparse.Action):
    def __init__(self, **settings: Any) -> None:
        super().__init__(nargs=0, default=argparse.SUPPRESS, **settings)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        assert isinstance(parser, Parser)
        parser._print_message(parser.format_full_help(), sys.stdout)
        parser.exit()


def add_aliases(group: argparse._ActionsContainer, action: argparse.Action, *spellings: str) -> None:
    """Read further spellings of a flag, which its help does not show: earlier names, and a plural or singular."""
    for spelling in spellings:
        if spelling in group._option_string_actions:
            raise ValueError(f"{spelling} is a flag already")
        group._option_string_actions[spelling] = action


def run_command(
    name: str, command: Callable[[Sequence[str]], int], argv: Sequence[str] | None, *, interrupted: str = ""
) -> int:
    """Run a command and return its exit code; a `BenchhouseError` becomes one line on stderr.

    Ctrl-C, SIGTERM and SIGHUP raise KeyboardInterrupt in the command, so that it cleans up. `interrupted` is a message
    about what was saved and how to continue, for commands that do not print their own. Any other exception is a bug and
    keeps its traceback; BENCHHOUSE_TRACEBACK=1 shows the tracebacks of expected errors too.
    """
    with running(name) as typed, guarded_streams(), signals_interrupt() as received:
        try:
            arguments = sys.argv[1:] if argv is None else argv
            know_secrets_in(arguments)
            # The long arguments, and values in FLAG=VALUE, in each form that an error contains; the longest first.
            parts = [
                part
                for argument in arguments
                for part in (argument, argument.partition("=")[2])
                if len(part) > MAX_VALUE_LENGTH
            ]
            forms = {
                form for part in parts for form in (part, one_line(part), repr(part)[1:-1], one_line(visible(part)))
            }
            _LONG_ARGUMENTS.set(tuple(sorted(forms, key=len, reverse=True)))
            return _exit_code(typed, command, arguments)
        except KeyboardInterrupt as stop:
            # DuckDB reports every signal as one error; the handler knows which it was.
            number = stop.number if isinstance(stop, Interrupted) else received[-1] if received else signal.SIGINT
            print(f"{typed}: interrupted{f': {interrupted}' if interrupted else ''}", file=sys.stderr)
            return 128 + number


def command(name: str, *, interrupted: str = "") -> Callable[[Callable[[Sequence[str]], int]], Callable[..., int]]:
    """Turns a function of the words after a command's name into its `main`: `run_command` runs it, with the words of
    the process unless others are given."""

    def decorate(function: Callable[[Sequence[str]], int]) -> Callable[..., int]:
        @wraps(function)
        def main(argv: Sequence[str] | None = None) -> int:
            return run_command(name, function, argv, interrupted=interrupted)

        return main

    return decorate


def shows_tracebacks() -> bool:
    """Whether BENCHHOUSE_TRACEBACK=1 requests the tracebacks of expected errors too."""
    return os.environ.get("BENCHHOUSE_TRACEBACK") == "1"


def _exit_code(name: str, command: Callable[[Sequence[str]], int], argv: Sequence[str]) -> int:
    try:
        require_address_space()
        return command(argv)
    except SystemExit as stop:  # how argparse ends after --help and usage errors
        return stop.code if isinstance(stop.code, int) else EXIT_USAGE
    except BenchhouseError as error:
        if shows_tracebacks():
            raise
        print(f"{name}: error: {clipped(one_line(str(error)))}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        # The reader of a pipe has gone ("| head"). Without this, Python reports the broken pipe again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED
    except OSError as error:
        if error.errno == errno.ENOMEM and (line := out_of_memory_line(error)) is not None:
            print(f"{name}: error: {clipped(one_line(line))}", file=sys.stderr)
            return EXIT_FAILED
        if isinstance(error, FileNotFoundError) and _is_working_folder_gone():
            print(f"{name}: error: the working folder was deleted: change to another folder", file=sys.stderr)
            return EXIT_FAILED
        if error.errno not in PLACE_ERRORS or shows_tracebacks():
            raise
        place = "" if error.filename is None else f"{error.filename}: "
        problem = one_line(f"{place}{error.strerror}: {PLACE_ERRORS[error.errno]}")
        print(f"{name}: error: {clipped(problem)}", file=sys.stderr)
        return EXIT_FAILED
    except (MemoryError, ImportError, RuntimeError, SystemError) as error:
        line = out_of_memory_line(error)
        if line is None and isinstance(error, RuntimeError) and str(error).startswith(LOOP):
            line = f"{error}: choose another path"
        if line is None or shows_tracebacks():
            raise
        print(f"{name}: error: {clipped(one_line(line))}", file=sys.stderr)
        return EXIT_FAILED


def _is_working_folder_gone() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def hide_package(package: str) -> None:
    """Hide an optional package from this process, for commands that never use it: DuckDB imports pandas to check the
    types of values, which takes half a second."""
    if package not in sys.modules:
        sys.meta_path.insert(0, _HiddenPackage(package))


class _HiddenPackage(MetaPathFinder):
    def __init__(self, package: str) -> None:
        self._package = package

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == self._package:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def one_line(text: str) -> str:
    """The text with each run of white space replaced by one space."""
    return " ".join(text.split())


def clipped(message: str) -> str:
    """The message, without the middle parts of long values and of a very long message, since user input may have any
    length."""
    message = without_secrets(message)  # first: a part of one could not be recognised
    for value in _LONG_ARGUMENTS.get():
        message = message.replace(value, _ends(value, MAX_VALUE_LENGTH))
    message = LONG_WORD.sub(lambda match: _ends(match[0], MAX_VALUE_LENGTH), message)
    return message if len(message) <= MAX_MESSAGE_LENGTH else _ends(message, MAX_MESSAGE_LENGTH)


def _ends(text: str, length: int) -> str:
    """The two ends of a text that is longer than `length`, which is about the length of the result."""
    shown = length // 2 - 10
    return f"{text[:shown]}[{len(text) - 2 * shown} characters]{text[-shown:]}"


def note(message: str) -> None:
    """Print a one-line remark on stderr: neither a result nor an error."""
    print(visible(message), file=sys.stderr, flush=True)


def notes(*, quiet: bool) -> Callable[[str], None]:
    """The function that prints progress on stderr: `note`, or none with --quiet."""
    return (lambda message: None) if quiet else note


def default_database() -> str:
    """`$BENCHMARK_DB_PATH`, or benchmark_db.duckdb in the working folder."""
    return os.environ.get("BENCHMARK_DB_PATH") or DEFAULT_DATABASE


# Types for argparse.


def positive_int(text: str) -> int:
    """A whole number from 1."""
    return _int(text, least=1)


def non_negative_int(text: str) -> int:
    """A whole number from 0."""
    return _int(text, least=0)


def positive_ints(text: str) -> tuple[int, ...]:
    """A list such as 1,2,4: whole numbers from 1, sorted, without duplicates."""
    parts = _parts(text, "1,2,4")
    try:
        return tuple(sorted({positive_int(part) for part in parts}))
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"{error}{_hint_of_list(parts)}") from None


def positive_numbers(text: str) -> tuple[float, ...]:
    """A list such as 2.5,30: numbers above 0, sorted, without duplicates, whole ones as int."""
    parts = _parts(text, "2.5,30")
    try:
        values = {_number(part, "takes numbers above 0", lambda value: value > 0) for part in parts}
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"{error}{_hint_of_list(parts)}") from None
    return tuple(int(value) if value.is_integer() else value for value in sorted(values))


UNLIMITED = ("max", "maximum", "unlimited", "none", "throughput", "burst", "-1", "0")
"""What people write for a rate without a limit."""


def positive_rates(text: str) -> tuple[float, ...]:
    """Numbers above 0 such as 1,2.5, each also with /s, or inf alone."""
    if text.strip().lower() in UNLIMITED:
        raise argparse.ArgumentTypeError(f"takes numbers above 0, or inf to send all requests at once: got {text!r}")
    if "/m" in text or "/h" in text:
        raise argparse.ArgumentTypeError(f"takes requests per second: got {text!r}: 2 is 120 a minute")
    return (math.inf,) if text.strip().lower() == "inf" else positive_numbers(text.replace("/s", ""))


def non_negative_seconds(text: str) -> float:
    """A duration in seconds from 0."""
    return _number(_seconds(text), "takes seconds from 0, such as 90 or 2m", lambda value: value >= 0, most=MAX_SECONDS)


def non_negative_number(text: str) -> float:
    """A number from 0."""
    return _number(text, "takes a number from 0", lambda value: value >= 0)


def positive_number(text: str) -> float:
    """A number above 0."""
    return _number(text, "takes a number above 0", lambda value: value > 0)


def positive_seconds(text: str) -> float:
    """A duration in seconds above 0."""
    return _number(_seconds(text), "takes seconds above 0, such as 90 or 2m", lambda value: value > 0, most=MAX_SECONDS)


def names(text: str) -> tuple[str, ...]:
    """A list of names such as a,b."""
    parts = tuple(part.strip() for part in text.split(",") if part.strip())
    if not parts:
        raise argparse.ArgumentTypeError("the list is empty: give names such as a,b")
    return parts


def file_to_write(text: str) -> Path:
    """A file that can be written, or "-" for stdout. Checked before a command begins, so that its work is not lost."""
    path = Path(text)
    if text == "-":
        return path
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"takes a file: {text} is a folder")
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"cannot write {text}: {path.parent} is not a folder: create it first")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise argparse.ArgumentTypeError(f"cannot write {text}: no permission: choose another path")
    return path


def folder_to_write(text: str) -> str:
    """A folder, which may not exist yet, but is not a file."""
    path = Path(text).expanduser()
    if text.isdecimal() and not path.exists():  # meant for another flag, such as the depth that is -d in llama-bench
        raise argparse.ArgumentTypeError(f"takes a folder: got the number {text}; a folder of that name is ./{text}")
    for place in (path, *path.parents):
        if place.is_dir():
            break
        if place.exists():
            raise argparse.ArgumentTypeError(f"takes a folder: {place} is a file")
    return text


def database_file(text: str) -> str:
    """The file of a database, which may not exist yet, or ducklake:..."""
    if text.startswith("ducklake:"):
        return text
    path = Path(text).expanduser()
    if "://" in text:
        raise argparse.ArgumentTypeError(f"takes a DuckDB file or ducklake:...: got {text}")
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"takes a file: {text} is a folder")
    place = next((place for place in path.absolute().parents if place.exists()), path)
    if not path.exists() and not place.is_dir():
        raise argparse.ArgumentTypeError(f"takes a file in a folder: {place} is a file")
    return text


def tag(text: str) -> tuple[str, str]:
    """A tag key=value."""
    return _named(text, "key=value")


def _named(text: str, form: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        name, colon, rest = text.partition(":")
        hint = f": write {name}={rest}" if colon and name and not equals else ""
        raise argparse.ArgumentTypeError(f"takes {form}: got {text!r}{hint}")
    return key.strip(), value


def named_values(text: str) -> tuple[str, tuple[str, ...]]:
    """A name with its values: NAME=VALUE,VALUE. A value may be empty."""
    name, values = _named(text, "NAME=VALUE,VALUE")
    found = tuple(value.strip() for value in values.split(","))
    if len(set(found)) < len(found):
        raise argparse.ArgumentTypeError(f"takes different values: got {text!r}")
    if any(not value.isprintable() for value in found):
        raise argparse.ArgumentTypeError(f"takes printable values: got {text!r}")
    return name, found


def dimension(text: str) -> tuple[str, int | str]:
    """A size of a free dimension: NAME=48, or NAME=batch for one that is the batch."""
    name, size = _named(text, "NAME=N")
    return name, size if size == "batch" else positive_int(size)


def input_value(text: str) -> tuple[str, float]:
    """A value of an input: NAME=16000."""
    name, value = _named(text, "NAME=NUMBER")
    try:
        return name, int(value) if value.lstrip("+-").isdecimal() else float(value)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"takes NAME=NUMBER: got {text!r}") from error


def choice(value: str, known: Sequence[str], what: str) -> str:
    """`value`, if it is known. Raises UsageError with what was probably meant, and the nearest known names."""
    if value in known:
        return value
    raise UsageError(unknown_name(value, known, what))


def _int(text: str, least: int) -> int:
    try:
        value = int(text)
    except ValueError:
        what = "one whole number" if NUMBERS.fullmatch(text) else "whole numbers"
        hint = ", in digits such as 4096" if THOUSANDS.fullmatch(text) else ""
        hint = "; without the flag, its default holds" if text.lower() in ("auto", "all", "default", "max") else hint
        raise argparse.ArgumentTypeError(f"takes {what}{hint}: got {text!r}") from None
    if value < least:
        raise argparse.ArgumentTypeError(f"takes a whole number from {least}: got {text!r}")
    if value > MAX_INT:
        raise argparse.ArgumentTypeError(f"takes a whole number up to {MAX_INT}: got {clipped(text)!r}")
    return value


def _parts(text: str, example: str) -> list[str]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise argparse.ArgumentTypeError(f"the list is empty: give numbers such as {example}")
    return parts


def _hint_of_list(parts: Sequence[str]) -> str:
    """How a list is written, after an error about one of the parts, if they look like a range or another list."""
    is_list = any(
        separator in part[1:] for part in parts for separator in (" ", "-", ":", ";", "]", ")", "..", "^", "*")
    )
    return "; a list is written 1,2,4" if is_list else ""


def _seconds(text: str) -> str:
    """A duration such as 90, 90s, 500ms, 2m or 1h30m as a number of seconds, or the text if it is none."""
    found = list(DURATION.finditer(text.strip()))
    if not found or "".join(match[0] for match in found) != text.strip():
        return text
    return f"{sum(float(match[1]) * SECONDS.get(match[2], SECONDS[match[2][0]]) for match in found):.15g}"


def _number(text: str, expected: str, fits: Callable[[float], bool], *, most: float = MAX_NUMBER) -> float:
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{expected}: got {text!r}") from None
    if not fits(value) or not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{expected}: got {text!r}")
    if value > most:
        raise argparse.ArgumentTypeError(f"{expected}, up to {most:g}: got {text!r}")
    return value
