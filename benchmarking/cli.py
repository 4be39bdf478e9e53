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
  benchhouse load NAME --url URL --request-rates 1,9 --find-rate --limit e2e:2s
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
        from benchmarking.core.command_line import run_command

        def print_help(_: Sequence[str]) -> int:
            print(f"{text}\nbenchhouse COMMAND --help shows the flags of a command.", flush=True)
            return EXIT_OK if arguments else EXIT_USAGE

        return run_command("benchhouse", print_help, [])
    if arguments[0] in ("--version", "-V", "version"):
        from benchmarking.core.command_line import print_version

        return print_version("benchhouse version", arguments[1:])
    typed, *rest = arguments
    name = typed.removesuffix(".py")
    name = ALIASES.get(name, name)
    command = COMMANDS.get(name)
    if command is None:
        print(f"benchhouse: error: {_unknown(typed, rest)}", file=sys.stderr)
        return EXIT_USAGE
    from benchmarking.core.command_line import hide_pandas

    if argv is None and name in WITHOUT_PANDAS:
        hide_pandas()
    module = importlib.import_module(command.module)
    with typed_as(f"benchhouse {typed}"):
        return int(module.main(rest))


def _unknown(name: str, rest: Sequence[str]) -> str:
    """The message for a word that is no command, and those after it."""
    from benchmarking.core.suggestions import COMMANDS_MEANT, meant_by, named_by

    if name.startswith("-"):
        return f"{name}: a command comes first, as in benchhouse run MODEL: benchhouse --help lists all"
    if (what := name.removeprefix("list-")) in ("devices", "runtimes", "models"):
        return f"unknown command {name!r}: benchhouse run --list-{what} lists them"
    if name in ("env", "info", "hardware", "doctor", "system"):
        return f"unknown command {name!r}: benchhouse run --list-devices shows this machine"
    answers = {word: text for words, text in COMMANDS_MEANT.items() for word in words.split()}
    if (answer := answers.get(name)) is not None:
        is_of_server = {word.partition("=")[0] for word in rest} & OF_SERVERS
        return f"unknown command {name!r}: {answers['serving'] if is_of_server else answer}"
    import shlex

    from benchmarking.workloads.support import families

    known = [*COMMANDS, *ALIASES]
    near = meant_by(name, known)
    if rest and near[:1] == named_by(name, known)[:1]:  # a word in front of another one for a command: perf diff
        near = [one for one in (rest[0],) if one in COMMANDS] or named_by(rest[0], known)[:1] or near
    is_folder = os.path.isdir(name) and (not near or os.path.isfile(os.path.join(name, "config.json")))
    if families.catalog_entry(name) is not None or name.endswith((".gguf", ".onnx")) or is_folder:
        return f"{name!r} is no command: benchhouse run {shlex.quote(name)} measures a model"
    ours = list(dict.fromkeys(ALIASES.get(one, one) for one in near))
    hint = f"did you mean {' or '.join(ours)}? " if ours else ""
    return f"unknown command {name!r}: {hint}benchhouse --help lists all"


if __name__ == "__main__":
    sys.exit(main())
