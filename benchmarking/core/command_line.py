"""Shared by all commands: the parser, one-line errors, and exit codes."""

from __future__ import annotations

import argparse
import errno
import importlib
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from contextvars import ContextVar
from functools import wraps
from importlib.abc import MetaPathFinder
from itertools import pairwise, zip_longest
from typing import Any, NoReturn

from benchmarking import __version__
from benchmarking.core.child_process import signals_interrupt
from benchmarking.core.command_names import ALIASES, COMMANDS, as_typed, running, shown_name, typed_as
from benchmarking.core.errors import (
    EXIT_FAILED,
    EXIT_OK,
    EXIT_USAGE,
    BenchhouseError,
    Interrupted,
    UsageError,
    out_of_memory_line,
    require_address_space,
)
from benchmarking.core.foreign_flags import other_words
from benchmarking.core.help_texts import help_text
from benchmarking.core.suggestions import (
    ASSIGNMENT,
    HOST_AND_PORT,
    JOINING,
    ONE_STORED_MODEL,
    SERVERS,
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

DEFAULT_DATABASE = "benchmark_db.duckdb"


PART_OF_LIST = "is_part_of_list"
"""The attribute of a flag that takes a list, if only in other commands: whether a word after its values, separated by a
space, is one more."""
FLAG = re.compile(r"--?[A-Za-z][^\s=]*")
"""A word that can only be a flag: not a negative number, and not a text with spaces."""
LIMIT = re.compile(r"[a-z0-9_]+:\d[\w.]*")
"""A limit that has become an argument of its own."""
PATH = re.compile(r"\b(FILE|DIR|FOLDER)\b|\.duckdb$")
"""A metavar for paths."""
MAY_BE_EMPTY = ("TEXT", "ARGS", "SELECTION")
"""Metavars of what may be left empty."""
EXAMPLE = re.compile(r"""such as ('[^']+'|"[^"]+"|\S*[\w%])|((?:[a-z0-9]+:\d\w*,?){2,})""")
"""A value that a help text names, or several limits."""
FIRST_EXAMPLE = re.compile(r"^  (benchhouse .*[^\\\n])$", re.MULTILINE)
"""The first example below the help of a command that takes one line."""
_LONG_ARGUMENTS: ContextVar[tuple[str, ...]] = ContextVar("long_arguments", default=())
"""Arguments of the running command that are too long for an error message, as messages contain them."""


_IS_ASKED_FOR: ContextVar[bool] = ContextVar("is_asked_for", default=False)
"""Whether a command is run for its parser alone."""


class _Reached(BaseException):
    """Ends a command at the point where it would parse its arguments."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        super().__init__()
        self.parser = parser


def parser_of(command: str, *words: str) -> argparse.ArgumentParser:
    """The parser that a command of `benchhouse` has for these words; the command is stopped before it does anything.
    Raises ImportError if a package of it is not installed."""
    module = importlib.import_module(COMMANDS[ALIASES.get(command, command)].module)
    token = _IS_ASKED_FOR.set(True)
    try:
        with typed_as(f"benchhouse {command}"):
            module.main(list(words))
    except _Reached as reached:
        return reached.parser
    finally:
        _IS_ASKED_FOR.reset(token)
    raise LookupError(f"command {command} parses no arguments")


def commands_with(flag: str) -> Iterator[str]:
    """The commands, as the user types them, whose help shows a flag. All parsers take about a second to make: for a
    flag that nothing else is known of."""
    for name in COMMANDS:
        with suppress(ImportError):  # without its package, nobody types a flag of it here
            parser = parser_of(name)
            parsers = {name: parser}
            for action in parser._actions:
                if isinstance(action, argparse._SubParsersAction):
                    parsers |= {f"{name} {word}": own for word, own in action.choices.items()}
            for words, own in parsers.items():
                if getattr(own._option_string_actions.get(flag), "help", argparse.SUPPRESS) != argparse.SUPPRESS:
                    yield as_typed(words)


class Parser(argparse.ArgumentParser):
    """An argument parser that takes no abbreviations, and reports a usage error in one line with what was meant."""

    def __init__(self, *, prog: str, details: str = "", **settings: Any) -> None:
        """`details` is text that only --help-all shows."""
        settings.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(prog=shown_name(prog), allow_abbrev=False, add_help=False, **settings)
        self.details = details
        self._words: list[str] = []
        self.add_argument("-h", "--help", action="help", help=argparse.SUPPRESS)
        self.add_argument("--help-all", action=_HelpAll, nargs=0, default=argparse.SUPPRESS, help=argparse.SUPPRESS)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        if _IS_ASKED_FOR.get():
            raise _Reached(self)
        return super().parse_args(args, namespace)

    def format_help(self) -> str:
        """The flags that most people need."""
        return help_text(self, everything=False)

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
            what = "a model on the Hugging Face hub, a folder, or a model of the catalog"
            if "--among" in self._option_string_actions:
                what = 'one that is stored: benchhouse query "SELECT DISTINCT model_id FROM benchmark_runs" lists them'
            self.error(f"MODEL is missing: name {what}")
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
        if needed := re.search(r"arguments are required: (--[\w-]+)$", message):
            takes = self._option_string_actions[needed[1]]
            meant = next((word for word in self._words if word in (takes.choices or ())), None)
            message += (
                f" {takes.metavar or takes.dest.upper()}" if meant is None else f": did you mean {needed[1]} {meant}?"
            )
        missing = re.search(r"arguments are required: ([^-].*)$", message)
        if missing is not None and (example := FIRST_EXAMPLE.search(self.epilog or "")) is not None:
            message = f"{missing[1]} is missing, as in {example[1]}"
        named = re.match(r"argument (?:-\w/)?(--[\w-]+): ", message)
        if named is not None and message.endswith(": expected one argument"):
            takes = self._option_string_actions[named[1]]
            message = f"{named[0]}expected one argument, {takes.metavar or takes.dest.upper()}"
            if (example := EXAMPLE.search((takes.help or "").replace("%%", "%"))) is not None:
                message += f", such as {example[1] or example[2]}"
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
            shown = {  # every spelling of a flag -> the one in the help; none for hidden flags
                spelling: action.option_strings[-1] if spelling not in action.option_strings else spelling
                for spelling, action in self._option_string_actions.items()
                if action.help != argparse.SUPPRESS or isinstance(action, _OneModel | argparse._HelpAction)
            }
            taken = {  # each flag that takes one of a few words -> the words
                action.option_strings[-1]: [str(one) for one in action.choices]
                for action in self._actions
                if action.option_strings and action.choices is not None and action.help != argparse.SUPPRESS
            }
            arguments = [str(action.metavar) for action in self._actions if not action.option_strings]
            message = unknown_flag(
                flag,
                shown,
                selection=self._selection,
                arguments=arguments,
                values=taken,
                value=value or following,
                elsewhere=commands_with,
            )
            self.error(message)

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

    def _stray(self, word: str) -> str | None:
        """What a word that is no argument probably is."""
        before = self._words[max(0, self._words.index(word) - 1)] if word in self._words else ""
        return stray_word(word, before, self._option_string_actions)

    def _unexpected(self, word: str) -> str:
        """The message for an argument too many."""
        before = self._words[: self._words.index(word)] if word in self._words else []
        if self._is_typed("--limit") and (LIMIT.fullmatch(word) or (word in JOINING and ":" in "".join(before[-1:]))):
            return f"unexpected argument {word!r}: limits are one word, joined by commas: ttft:500ms,tpot:50ms"
        addresses = (
            one
            for before, one in zip(("", *self._words), self._words, strict=False)
            if "://" in one
            and not one.startswith("-")
            and getattr(self._option_string_actions.get(before), "nargs", 0) == 0  # not the value of a flag
        )
        address = next(addresses, None)
        for each in (word, *([] if address is None or self._is_typed("--url") else [address])):
            if (stray := self._stray(each)) is not None:
                return stray
        if self._selection == "":
            return f"unexpected argument {word!r}: a selection is one word, with its fields joined by commas"
        arguments = [str(action.metavar) for action in self._actions if not action.option_strings]
        of_list = getattr(self._option_string_actions.get("".join(before[-2:-1])), PART_OF_LIST, None) is not None
        joined = f"a list is one word, as in {before[-2]} {before[-1]},{word}" if of_list and word else ""
        if joined and word[0].isdigit():
            return f"unexpected argument {word!r}: {joined}"
        if "MODEL" in arguments and "--among" in self._option_string_actions:
            return f"unexpected argument {word!r}: takes one model: {ONE_STORED_MODEL}"
        return "; ".join(filter(None, (unexpected_argument(word, self._words, arguments), joined)))

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

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        """A value as its type reads it. A path may begin with `~`, which no shell has replaced in `--db-path=~/x`."""
        if isinstance(action, argparse._SubParsersAction):  # gets all words, which the parser of the action reads
            return arg_string
        takes = str(action.metavar or action.dest.upper())
        is_path = PATH.search(takes) is not None
        is_text = action.type in (None, str) and action.nargs != argparse.PARSER  # no words of a command below
        is_name = (is_path or is_text) and takes not in MAY_BE_EMPTY
        is_typed = arg_string not in (action.default, action.const)
        if is_name and is_typed and not arg_string.strip():  # the current folder, or no name at all
            raise argparse.ArgumentError(action, f"takes {takes}: got {arg_string!r}")
        return super()._get_value(action, os.path.expanduser(arg_string) if is_path else arg_string)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            what = "action" if isinstance(action, argparse._SubParsersAction) else "value"
            if "://" in str(value) and "--url" in self._option_string_actions:
                raise argparse.ArgumentError(action, f"takes no address: got {value}: that is --url")
            if (elsewhere := value_elsewhere(action.option_strings, str(value))) is not None:
                raise argparse.ArgumentError(action, elsewhere)
            if "," in str(value) and getattr(action, PART_OF_LIST, None) is not None:
                several = "benchhouse run compares several in one command"
                raise argparse.ArgumentError(action, f"takes one value here: got {value}: {several}")
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
        actions = parser._option_string_actions
        if HOST_AND_PORT.match(values) and "--url" in actions and not os.path.exists(values):
            parser.error(stray_word(values, "", actions) or values)
        if LIMIT.fullmatch(values) and "--limit" in actions and not os.path.exists(values):
            parser.error(f"{values!r} is no model: limits are one word, joined by commas: ttft:500ms,tpot:50ms")
        if ASSIGNMENT.match(values) and not os.path.exists(values):
            among = "--among" in actions
            how = f"a selection is --among {values}" if among else "each setting is a flag, such as --device cpu"
            parser.error(f"{values!r} is no model: {how}")
        is_own = self.stored is not None and self.stored[0] is namespace and self.stored[1] == present
        if present not in (None, values) and not is_own:
            assert isinstance(parser, Parser)
            if "--serve" in actions and (servers := {present, values} & {*SERVERS}):
                server = servers.pop()
                model = next((one for one in (present, values) if one not in SERVERS), "MODEL")
                parser.error(
                    f"{server} is a server: give --url URL --engine {server} of one that runs, or its command with "
                    f"--serve, as in --serve 'vllm serve {model} --port {{port}}'"
                )
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
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        assert isinstance(parser, Parser)
        parser._print_message(help_text(parser, everything=True, details=parser.details), sys.stdout)
        parser.exit()


def add_aliases(group: argparse._ActionsContainer, action: argparse.Action, *spellings: str) -> None:
    """Read further spellings of a flag, which its help does not show: earlier names, and a plural or singular."""
    for spelling in spellings:
        if spelling in group._option_string_actions:
            raise ValueError(f"{spelling} is a flag already")
        group._option_string_actions[spelling] = action


def run_command(
    name: str,
    command: Callable[[Sequence[str]], int],
    argv: Sequence[str] | None,
    *,
    interrupted: str = "",
    only_prints: bool = False,
) -> int:
    """Run a command and return its exit code; a `BenchhouseError` becomes one line on stderr.

    Ctrl-C, SIGTERM and SIGHUP raise KeyboardInterrupt in the command, so that it cleans up. `interrupted` is a message
    about what was saved and how to continue, for commands that do not print their own. Where the reader of its output
    goes ("| head"), a command that only prints ends; every other goes on, since what it stores or writes is still
    wanted. Any other exception is a bug and keeps its traceback; BENCHHOUSE_TRACEBACK=1 shows the tracebacks of
    expected errors too.
    """
    with (
        running(name) as typed,
        guarded_streams(outlive_readers=not only_prints),
        signals_interrupt() as received,
    ):
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


def command(
    name: str, *, interrupted: str = "", only_prints: bool = False
) -> Callable[[Callable[[Sequence[str]], int]], Callable[..., int]]:
    """Turns a function of the words after a command's name into its `main`: `run_command` runs it, with the words of
    the process unless others are given."""

    def decorate(function: Callable[[Sequence[str]], int]) -> Callable[..., int]:
        @wraps(function)
        def main(argv: Sequence[str] | None = None) -> int:
            return run_command(name, function, argv, interrupted=interrupted, only_prints=only_prints)

        return main

    return decorate


def print_version(name: str, argv: Sequence[str]) -> int:
    """Run the command of this name that prints the version; returns its exit code."""

    def printed(words: Sequence[str]) -> int:
        Parser(prog=name, description="Prints the version.").parse_args(words)
        print(f"benchhouse {__version__}", flush=True)
        return EXIT_OK

    return run_command(name, printed, argv)


def shows_tracebacks() -> bool:
    """Whether BENCHHOUSE_TRACEBACK=1 requests the tracebacks of expected errors too."""
    return os.environ.get("BENCHHOUSE_TRACEBACK") == "1"


def _exit_code(name: str, command: Callable[[Sequence[str]], int], argv: Sequence[str]) -> int:
    code = EXIT_FAILED
    try:
        require_address_space()
        return command(argv)
    except SystemExit as stop:  # how argparse ends after --help and usage errors
        return stop.code if isinstance(stop.code, int) else EXIT_USAGE
    except BenchhouseError as error:
        if shows_tracebacks():
            raise
        line, code = str(error), error.exit_code
    except BrokenPipeError:
        # The reader of a pipe has gone ("| head"). Without this, Python reports the broken pipe again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED
    except OSError as error:
        problem = out_of_memory_line(error) if error.errno == errno.ENOMEM else None
        if problem is None and isinstance(error, FileNotFoundError):
            try:
                os.getcwd()
            except FileNotFoundError:
                problem = "the working folder was deleted: change to another folder"
        if problem is None:
            if error.errno not in PLACE_ERRORS or shows_tracebacks():
                raise
            place = "" if error.filename is None else f"{error.filename}: "
            problem = f"{place}{error.strerror}: {PLACE_ERRORS[error.errno]}"
        line = problem
    except (MemoryError, ImportError, RuntimeError, SystemError) as error:
        problem = out_of_memory_line(error)
        if problem is None and isinstance(error, RuntimeError) and str(error).startswith(LOOP):
            problem = f"{error}: choose another path"
        if problem is None or shows_tracebacks():
            raise
        line = problem
    print(f"{name}: error: {clipped(one_line(line))}", file=sys.stderr)
    return code


def hide_pandas() -> None:
    """Hide pandas from this process, for commands that never use it: DuckDB imports it to check the types of values,
    which takes half a second."""

    class Hidden(MetaPathFinder):
        def find_spec(self, name: str, path: object = None, target: object = None) -> None:
            if name == "pandas":
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    if "pandas" not in sys.modules:
        sys.meta_path.insert(0, Hidden())


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
    return os.path.expanduser(os.environ.get("BENCHMARK_DB_PATH") or DEFAULT_DATABASE)


def database_flags(db_path: str) -> list[str]:
    """`--db-path` for a command that is suggested; none for the default database."""
    return [] if db_path == default_database() else flag_words("--db-path", db_path)


def flag_words(flag: str, value: str) -> list[str]:
    """A flag with its value in a command that is suggested: one word if the value begins with a dash."""
    return [f"{flag}={value}"] if value.startswith("-") else [flag, value]


def choice(value: str, known: Sequence[str], what: str) -> str:
    """`value`, if it is known. Raises UsageError with what was probably meant, and the nearest known names."""
    if value in known:
        return value
    raise UsageError(unknown_name(value, known, what))
