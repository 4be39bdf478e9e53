"""The command `benchhouse`: `benchhouse <command> ...` imports the module of that command and no other."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

from benchmarking.core.command_names import ALIASES, COMMANDS, GROUPS, VERSION, typed_as
from benchmarking.core.errors import EXIT_OK, EXIT_USAGE

OF_SERVERS = frozenset(
    {"serve", "serving", "--target", "--url", "--base-url", "--request-rate", "--endpoint", "--host"}
)
"""Words after another tool's command with which a server is meant, as in guidellm benchmark --target."""
WITHOUT_PANDAS = frozenset(
    (
        *("alert", "annotate", "check", "compare", "delete", "history"),
        *("query", "recommend", "regressions", "series", "show"),
    )
)
"""Commands that need no package that uses pandas, unlike charts and the MLflow exporter."""
EXAMPLES = """\
examples:
  benchhouse run bert-base-uncased --device cpu --save
  benchhouse tune bert-base-uncased --limit latency_p95:50ms
  benchhouse ab "benchhouse run gpt2" --worktree-a ../main --fail-on slower
  benchhouse load NAME --url URL --request-rate 1,9 --find-rate --limit e2e:2s
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the named command. Exit code 2 for a name that is not in the table."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    if arguments[:1] == ["help"] and arguments[1:]:
        arguments = [arguments[1], "--help"]
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        width = max(map(len, COMMANDS))
        groups = (
            f"{group}:\n" + "\n".join(f"  {name:<{width}}  {command.summary}" for name, command in commands.items())
            for group, commands in {**GROUPS, "maintain": {**GROUPS["maintain"], "version": VERSION}}.items()
        )
        text = "\n\n".join(["usage: benchhouse COMMAND [arguments]", *groups, EXAMPLES])
        return _print(
            f"{text}\nbenchhouse COMMAND --help shows the flags of a command.", EXIT_OK if arguments else EXIT_USAGE
        )
    if arguments[0] in ("--version", "-V", "version"):
        from benchmarking import __version__
        from benchmarking.core.command_line import Parser, run_command

        def print_version(words: Sequence[str]) -> int:
            Parser(prog="benchhouse version", description="Prints the version.").parse_args(words)
            print(f"benchhouse {__version__}", flush=True)
            return EXIT_OK

        return run_command("benchhouse version", print_version, arguments[1:], only_prints=True)
    typed, *rest = arguments
    name = typed.removesuffix(".py")
    name = ALIASES.get(name, name)
    command = COMMANDS.get(name)
    if command is None:
        return _unknown(typed, rest)
    from benchmarking.core.command_line import hide_package

    if argv is None and name in WITHOUT_PANDAS:
        hide_package("pandas")
    module = importlib.import_module(command.module)
    with typed_as(f"benchhouse {typed}"):
        return int(module.main(rest))


def _unknown(name: str, rest: Sequence[str]) -> int:
    from benchmarking.core.suggestions import COMMANDS_MEANT, meant_by, named_by

    if name.startswith("-"):
        first = "a command comes first, as in benchhouse run MODEL: benchhouse --help lists all"
        print(f"benchhouse: error: {name}: {first}", file=sys.stderr)
        return EXIT_USAGE
    if (what := name.removeprefix("list-")) in ("devices", "runtimes", "models"):
        print(f"benchhouse: error: unknown command {name!r}: benchhouse run --list-{what} lists them", file=sys.stderr)
        return EXIT_USAGE
    if name in ("env", "info", "hardware", "doctor", "system"):
        print(
            f"benchhouse: error: unknown command {name!r}: benchhouse run --list-devices shows this machine",
            file=sys.stderr,
        )
        return EXIT_USAGE
    answers = {word: text for words, text in COMMANDS_MEANT.items() for word in words.split()}
    if (answer := answers.get(name)) is not None:
        is_of_server = {word.partition("=")[0] for word in rest} & OF_SERVERS
        answer = answers["serving"] if is_of_server else answer
        print(f"benchhouse: error: unknown command {name!r}: {answer}", file=sys.stderr)
        return EXIT_USAGE
    from benchmarking.workloads.support import families

    known = [*COMMANDS, *ALIASES]
    near = meant_by(name, known)
    if rest and near[:1] == named_by(name, known)[:1]:  # a word in front of another one for a command: perf diff
        near = [one for one in (rest[0],) if one in COMMANDS] or named_by(rest[0], known)[:1] or near
    is_folder = os.path.isdir(name) and (not near or os.path.isfile(os.path.join(name, "config.json")))
    if families.catalog_entry(name) is not None or name.endswith((".gguf", ".onnx")) or is_folder:
        print(f"benchhouse: error: {name!r} is no command: benchhouse run {name} measures a model", file=sys.stderr)
        return EXIT_USAGE
    ours = list(dict.fromkeys(ALIASES.get(one, one) for one in near))
    hint = f"did you mean {' or '.join(ours)}? " if ours else ""
    print(f"benchhouse: error: unknown command {name!r}: {hint}benchhouse --help lists all", file=sys.stderr)
    return EXIT_USAGE


def _print(text: str, exit_code: int) -> int:
    """Print the text as a command does: a closed pipe ("| head") is not an error."""
    from benchmarking.core.command_line import run_command

    def command(_: Sequence[str]) -> int:
        print(text, flush=True)
        return exit_code

    return run_command("benchhouse", command, [], only_prints=True)


if __name__ == "__main__":
    sys.exit(main())
