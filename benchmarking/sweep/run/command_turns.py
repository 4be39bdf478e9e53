"""Two commands measured in turns, in random order in each round, so that neither drifts of the machine nor disturbances
that come back affect one of them more (`core.verdicts.launches`).

A turn is one launch of one side, in a separate process (`run_hardware_benchmark --turn DIR`, or `batch_benchmark`,
which also measures user-written benchmarks). The sides may differ in interpreter, environment variables and working
folder; the versions, commit and device stored with a side are those of its own process. Between turns, the results of a
side are in its folder, as with any unfinished run.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from importlib.util import find_spec
from pathlib import Path
from time import monotonic
from typing import Literal

from benchmarking.core.child_process import environment, module_command, pass_on, run_bound
from benchmarking.core.command_names import SCRIPTS
from benchmarking.core.errors import EXIT_FAILED, EXIT_OK, BenchhouseError, Interrupted, UsageError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.suggestions import BENCH_WORDS, flags_in, in_our_words
from benchmarking.core.text import duration
from benchmarking.core.verdicts.launches import random_order
from benchmarking.sweep.plan.plan import CellPlan
from benchmarking.sweep.run import spool
from benchmarking.sweep.run.command_session import finish_run, recover_finished

TURN = "--turn"
"""The flag of a turn, whose value is its folder."""


def without_turn_flag(argv: Sequence[str]) -> tuple[str, ...]:
    """The arguments without --turn DIR, since its folder no longer exists when the command is repeated."""
    positions = {position for position, word in enumerate(argv) if word == TURN}
    dropped = positions | {position + 1 for position in positions}
    return tuple(
        word for position, word in enumerate(argv) if position not in dropped and not word.startswith(f"{TURN}=")
    )


def take_turn(
    folder: Path,
    plans: Callable[[], Sequence[CellPlan]],
    *,
    quiet: bool,
    arguments: Mapping[str, object],
    device_wait_s: float | None,
) -> int:
    """Measure the next launch of the runs in the folder; if it is empty, the runs are created from `plans`. An
    interruption ends the process without a word: the command that measures in turns is the one that the user typed.

    Runs without remaining launches are finished, and their run files written. `arguments` are those of the command: see
    `Track.resume`. Returns the exit code, 0 if no launch is left.

    Raises UsageError for invalid plans, StorageError if the folder cannot be written to.
    """
    from benchmarking.sweep.run.supervisor import Track, sweep_one_launch
    from benchmarking.sweep.show.progress import observed

    spool.prepare(folder)
    has_begun = any(folder.glob("*.json*"))
    with spool.held(spool.unfinished(folder)) as files:
        completed = [file for file in files if file.run_file() is not None]
        finished = [recover_finished(file) for file in completed]
        unfinished = [Track.resume(file, arguments) for file in files if file not in completed]
        tracks = unfinished if has_begun else [Track(plan, folder) for plan in plans()]
        try:
            with observed(tracks, quiet=quiet, is_turn=True) as observer:
                sweep_one_launch(
                    tracks, observer, lambda track: finished.append(finish_run(track)), device_wait_s=device_wait_s
                )
        except KeyboardInterrupt as stop:
            raise SystemExit(128 + (stop.number if isinstance(stop, Interrupted) else signal.SIGINT)) from None
    return EXIT_FAILED if any(run.has_failures for run in finished) else EXIT_OK


DEFAULT_COMMAND = module_command("benchmarking.run_hardware_benchmark")
"""The default command of this installation."""
COMMANDS = {SCRIPTS["run"]: DEFAULT_COMMAND, SCRIPTS["batch"]: module_command("benchmarking.batch_benchmark")}
"""The commands that support --turn, by name."""
OURS = ("benchhouse", "benchmarking.", *COMMANDS)
"""What is in the command line of another program that runs one of them."""
NOT_OURS = (
    "no run file: use a command that measures, such as benchhouse run; the time of another program is measured by "
    "hyperfine, whose --export-json file benchhouse import reads"
)
COMMIT = re.compile(r"(HEAD|main|master|develop|origin/[\w/-]+)([~^]\d*)*|[0-9a-f]{7,40}|v\d+(\.\d+)+")
"""What is a commit rather than a program."""
ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*", re.DOTALL)


Letter = Literal["a", "b"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One side: its command, and where it runs."""

    letter: Letter
    words: tuple[str, ...]
    """The command, its program first."""
    typed: str
    """As the user wrote it."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables in addition to those of this process."""
    folder: Path | None = None
    """Working folder, which is first on its module path; None for the current folder."""

    @property
    def name(self) -> str:
        """Its name: "A"."""
        return self.letter.upper()


def arm(letter: Letter, typed: str, worktree: Path | None = None) -> Arm:
    """The side of a command line: VAR=value ..., then the program and its flags, or the flags alone.

    The names run_hardware_benchmark, batch_benchmark and benchhouse refer to this installation. Raises UsageError for a
    line with unbalanced quotes, and for a program that does not exist.
    """
    variables: dict[str, str] = {}
    try:
        words = shlex.split(typed)
        while words and ASSIGNMENT.fullmatch(words[0]):
            name, _, value = words.pop(0).partition("=")
            variables[name] = value
        if worktree is not None and not worktree.is_dir():
            make = f"git worktree add {worktree} main"
            raise UsageError(f"{worktree} is not a folder: give the path of a worktree, or make it: {make}")
        program = _program(letter, words)
    except UsageError as error:
        raise UsageError(f"{letter.upper()}: {error}") from None
    except ValueError as error:
        raise UsageError(f"{letter.upper()}: {typed!r}: {error}") from None
    return Arm(letter=letter, words=program, typed=typed, environment=variables, folder=worktree and worktree.resolve())


def check_folders(first: Arm, second: Arm) -> None:
    """Raise UsageError for one `run` with one environment in two folders of which it uses nothing: no word names a file
    in them, and no module of theirs has the name of an installed one, whose place it would take. A gate on that always
    passes."""
    folders = [side.folder for side in (first, second) if side.folder is not None]
    words = [*first.words[len(DEFAULT_COMMAND) :], *first.environment.values()]
    is_one = (first.words, first.environment) == (second.words, second.environment)
    if len(folders) < 2 or not is_one or first.words[: len(DEFAULT_COMMAND)] != DEFAULT_COMMAND:
        return
    values = {part for word in words for part in (word, word.partition("=")[2], word.partition(":")[0]) if part}
    modules = {
        entry.stem for folder in folders for entry in folder.iterdir() if entry.is_dir() or entry.suffix == ".py"
    }
    relative = [value for value in values if not os.path.isabs(value)]  # an absolute path is the same file for both
    if any(os.path.exists(folder / value) for folder in folders for value in relative):  # of any text: False, no error
        return
    names = [name for name in modules if name.isidentifier() and not name.startswith("__")]
    if modules & {"sitecustomize", "usercustomize"} or any(map(find_spec, names)):
        return
    raise UsageError(
        f"{first.typed!r} uses nothing of {folders[0]} or {folders[1]}: no file that it names is there, and no "
        "package in place of an installed one, so both sides would be the same code: give the folders that hold your "
        "package (such as ../main/src), or measure your own code (benchhouse script FILE)"
    )


def order(rounds: Iterable[int], seed: str) -> tuple[Letter, ...]:
    """The side of each turn of these rounds, counted from 0: A B, A B, B A, ..., drawn by the seed."""
    sides: tuple[Letter, Letter] = ("a", "b")
    return tuple(letter for number in rounds for letter in random_order(seed, number, sides))


def measure_in_turns(
    arms: Sequence[Arm],
    rounds: range,
    folder: Path,
    extra_arguments: Mapping[Letter, Sequence[str]],
    say: Callable[[str], None],
    seed: str,
) -> int:
    """Measure one launch of each side in each of these rounds, counted from 0; returns the worst exit code.

    The seed gives the order of the sides in each round.

    The runs are left in the subfolders a and b of `folder`. `extra_arguments` are added to each side's command. Raises
    TurnError for a side whose command fails, or ends without a file of its launch.
    """
    by_letter = {side.letter: side for side in arms}
    code, began_s = EXIT_OK, monotonic()
    for turn, letter in enumerate(order(rounds, seed)):
        side = by_letter[letter]
        say(f"round {rounds.start + turn // 2 + 1}/{rounds.stop}: {side.name}")
        variables = {**os.environ, **side.environment}  # another interpreter uses its own packages
        if side.folder is not None or any(side.words[: len(words)] == words for words in COMMANDS.values()):
            variables = environment(side.environment, path_first=side.folder)  # first the modules of a worktree
        arguments = [*extra_arguments[letter], "--launches", str(len(rounds)), TURN, str(folder / letter)]
        ended = run_bound([*side.words, *arguments], variables, side.folder)  # its stdout goes to stderr
        pass_on(ended)
        if ended not in (EXIT_OK, EXIT_FAILED):
            raise TurnError(f"{side.name} ended with exit code {ended}: {side.typed}", letter, ended)
        if not any((folder / letter).rglob("*")):  # not even of its first launch
            raise TurnError(f"{letter.upper()} wrote {NOT_OURS}", letter)
        code = max(code, ended)
        if turn == 1 and rounds.start == 0 and len(rounds) > 1:
            round_s = monotonic() - began_s
            whole = f"{len(rounds)} rounds about {duration(round_s * len(rounds))}"
            say(f"the first round took {duration(round_s)}, so {whole}, or less where a build is in it")
    return code


def run_files(folder: Path, letter: Letter) -> list[Path]:
    """The run files of a side. Raises TurnError if there is none."""
    files = sorted((folder / letter).glob("*.json"))
    if not files:
        raise TurnError(f"{letter.upper()} wrote {NOT_OURS}", letter)
    return files


def _program(letter: Letter, words: Sequence[str]) -> tuple[str, ...]:
    if not words:
        raise UsageError("no command: give benchhouse run with flags, or only flags")
    first, is_ours = words[0], words[0] == "benchhouse"
    if first.startswith("-"):
        return (*DEFAULT_COMMAND, *words)
    command = words[1:] if is_ours else words
    name, is_missing = command[0].removesuffix(".py") if command else "", shutil.which(first) is None
    if is_ours or is_missing:
        name = SCRIPTS.get(name, name)
    if name in COMMANDS:
        return (*COMMANDS[name], *command[1:])
    given = flags_in(command)
    if is_ours and command[:1] == ["benches"] and "--model" not in given:
        folder = [] if "--benches" in given else ["--benches"]
        folder += ["benches"] if folder and command[1:2] != ["benches"] else []
        instead = shlex.join(("benchhouse", "batch", *folder, *in_our_words(command[1:], BENCH_WORDS)))
        raise UsageError(
            f"benchhouse benches cannot be measured in turns: write {instead}, which measures the same benchmarks"
        )
    if is_ours and command[:1] == ["load"] and "--url" in given:
        line = shlex.join((*words, "--repetitions", "3", "--tag", f"side={letter}"))
        raise UsageError(
            f"ab starts what it measures, and this server runs already: run {line} and the line of the other side five "
            "times in turns; benchhouse compare tag.side=a tag.side=b --across model judges them"
        )
    if is_ours and command[:1] == ["load"]:
        raise UsageError(
            "benchhouse load cannot be measured in turns: load --serve COMMAND --sweep NAME=A,B --repetitions 3, run "
            "five times, measures two configurations of a server in turns, and benchhouse compare serve_NAME=A "
            "serve_NAME=B judges them"
        )
    if is_ours:
        raise UsageError(
            f"{shlex.join(words[:2])} cannot be measured in turns: use benchhouse run or benchhouse batch, or save the "
            "results of both commands and use benchhouse compare"
        )
    if first.endswith(".json"):
        raise UsageError(
            f"{first} is no command, and ab launches both sides: benchhouse compare run=ID run=ID compares stored "
            "runs, which benchhouse import FILE stores"
        )
    if is_missing and COMMIT.fullmatch(first):
        raise UsageError(
            f"{first} is no command: two commits are compared in worktrees: git worktree add ../base {first}, then "
            "benchhouse ab 'benchhouse run MODEL' --worktree-a ../base"
        )
    if is_missing:
        raise UsageError(
            f"{first} does not exist or is not executable: check the command; a model is measured by benchhouse run "
            "MODEL"
        )
    # A word names a command of ours, or a script or an interpreter that may run one, also after a program as taskset.
    if not any(
        os.sep in word or word.startswith("python") or word.endswith(".py") or any(name in word for name in OURS)
        for word in words
    ):
        raise UsageError(f"{first} writes {NOT_OURS}; a script that runs it is given by its path")
    return tuple(words)


class TurnError(BenchhouseError):
    """The command of a side failed, after printing the reason, or measured nothing."""

    def __init__(self, message: str, letter: Letter, exit_code: int = EXIT_FAILED) -> None:
        super().__init__(message)
        self.letter = letter
        self.exit_code = exit_code if exit_code > 0 else EXIT_FAILED
