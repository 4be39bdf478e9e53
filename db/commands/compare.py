"""Compares two selections of results, or the values of one field, point by point, worst change first.

A selection is a run or session (id or unique prefix), a git commit, latest, or FIELD=VALUE,... with fields such as
model, device, runtime, precision, tag.NAME, since; sql:CONDITION for anything else. Two points match if everything that
defines a series is equal, except the fields that both selections name and those of --across. With --by, one selection
is split by a field, and each value is compared with the baseline.

Sides that ran interleaved (benchhouse ab, --interleave, several runtimes in one command) are compared round by round.
Other comparisons need a history of at least five sessions for a verdict, of two servers five loads of each in turns;
without it only the difference is shown. The exit code tells whether any point has an interval to judge by; with
--fail-on slower, also what the verdicts are.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if __package__ in (None, ""):  # run as a file: the path has its folder, not the repository
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from benchmarking.core.command_line import Parser, choice, command, note
from benchmarking.core.errors import EXIT_OK, UsageError
from benchmarking.core.metrics import METRICS
from benchmarking.core.settings import SWITCH, WORD, Setting, add_flags, add_settings
from benchmarking.core.shared_settings import COMMON
from benchmarking.core.suggestions import meant_by
from benchmarking.core.terminal import stdout_page
from benchmarking.core.verdicts.words import FLAG, HELP, conditions
from db.analysis.compare.matching import across_column
from db.analysis.junit import junit_of_error, write_for_ci
from db.analysis.selection import EVERYTHING, FIELDS, Selection, field_word, is_setting
from db.commands.arguments import (
    add_database,
    add_shared,
    chosen_metrics,
    command_parser,
    open_to_read,
    print_json,
    selection_in,
    unstored_in,
)

if TYPE_CHECKING:
    from db.analysis.compare.comparison import Comparison

NAME = "benchhouse compare"
EXAMPLES = """
examples:
  benchhouse compare 1f0c2ab 9be4410
  benchhouse compare runtime=eager runtime=onnxruntime --metric throughput_samples_per_sec
  benchhouse compare model=gpt2 --by precision --baseline float32 --markdown
  benchhouse compare branch=main branch=feature --fail-on slower
  benchhouse compare --profiles tag.version=1 tag.version=2
"""
EXIT_CODES = """
exit codes: 0 compared; 1 --fail-on: slower; 2 usage; 3 no point is comparable, or --fail-on: not known
"""
BY = {
    "device": "run MODEL --device OTHER",
    "runtime": "compare-runtimes MODEL",
    "precision": "run MODEL --precisions OTHER",
    "threads": "run MODEL --num-threads OTHER",
}
"""Field of --by -> the command that measures another value of it."""


@command(NAME)
def main(argv: Sequence[str]) -> int:
    """Run the command; returns its exit code."""
    arguments = _parser().parse_args(argv)
    with junit_of_error(arguments.junit, NAME):
        return _compare(arguments)


def _check_sides(arguments: argparse.Namespace) -> None:
    """Raises UsageError unless there are two sides, or one and what divides it, with flags that fit them."""
    count = len(arguments.selections)
    others = (
        arguments.by is not None,
        arguments.markdown,
        arguments.only_changes,
        bool(arguments.fail_on),
        arguments.junit,
    )
    if arguments.profiles and (count != 2 or any(others)):
        raise UsageError("--profiles takes two selections, and no other flag but --json")
    if arguments.by is not None:
        name = arguments.by = field_word(arguments.by)
        if name not in BY and (name in FIELDS or is_setting(name)):
            raise UsageError(
                f"--by takes {', '.join(BY)}: two values of {name} are compared by compare {name}=A {name}=B"
            )
        try:
            choice(name, tuple(BY), "field of --by")
        except UsageError as error:
            of_sweep = f"serve_{name}=A serve_{name}=B"
            raise UsageError(f"{error}; values of load --sweep are compared by compare {of_sweep}") from None
        if count > 1:
            raise UsageError(f"--by compares within one selection: got {count} selections")
    elif count != 2:
        first, *rest = arguments.selections or ("",)
        if len(rest) == 2 and "=" not in "".join(arguments.selections):
            for field in meant_by(first.removesuffix("s"), BY)[:1]:
                raise UsageError(f"{first!r} is no selection: did you mean {field}={rest[0]} {field}={rest[1]}?")
        for text in arguments.selections:
            if ".." in text or text in METRICS:  # git's range is answered with two selections, a metric with its flag
                Selection.parse(text)
        raise UsageError(
            f"expected two selections, or one and --by FIELD: got {count}; as in compare model=NAME --by runtime"
        )
    if arguments.baseline is not None and arguments.by is None:
        raise UsageError("--baseline is a value of --by: add --by FIELD")


def _compare(arguments: argparse.Namespace) -> int:
    _check_sides(arguments)
    if arguments.profiles:
        from db.analysis.compare.compared_profiles import compare_profiles, profiles_text

        first, second = map(Selection.parse, arguments.selections)
        with open_to_read(arguments) as warehouse:
            compared = compare_profiles(warehouse, first, second)
        if arguments.json:
            from benchmarking.core.records import to_json

            print_json({**to_json(compared), "outstanding": to_json(compared.outstanding)})
        else:
            print(profiles_text(compared, stdout_page()))
        return EXIT_OK
    (metric,) = chosen_metrics(arguments, [arguments.metric])
    across = [across_column(word) for word in arguments.across]
    selections = [selection_in(arguments, text) for text in arguments.selections]

    with open_to_read(arguments) as warehouse:
        from db.analysis.compare.comparison import compare, compare_within

        if arguments.by is None:
            before, after = selections
            comparison = compare(warehouse, before, after, metric, across)
        else:
            selection = selections[0] if selections else EVERYTHING
            comparison = compare_within(
                warehouse, selection, FIELDS[arguments.by], metric, baseline=arguments.baseline, across=across
            )
        is_stored = bool(warehouse.query("SELECT 1 FROM all_results LIMIT 1").dicts())
    from benchmarking.core.records import to_json
    from db.analysis.compare.comparison_text import comparison_junit, comparison_markdown, comparison_text

    gate = comparison.gate(metric, arguments.fail_on)
    reason = gate.text
    if not is_stored and not arguments.json:
        reason = f"not enough data: {arguments.db_path} has no results"
    elif not arguments.fail_on and reason:
        reason += f": {_why_empty(comparison, arguments.by)}{unstored_in(arguments, *arguments.selections)}"
    if arguments.json:
        print_json({**to_json(comparison), **({"gate": to_json(gate)} if arguments.fail_on else {})})
    elif not is_stored:
        pass
    elif arguments.markdown:
        print(comparison_markdown(comparison, only_changes=arguments.only_changes))
    else:
        print(comparison_text(comparison, only_changes=arguments.only_changes, page=stdout_page()))
    if reason:
        note(f"{NAME}: {reason}")
    written = EXIT_OK
    if arguments.junit is not None:
        text = comparison_junit(comparison, arguments.fail_on, gate.exit_code, reason, suite=NAME)
        written = write_for_ci(NAME, "--junit", arguments.junit, text)
    return gate.exit_code or written


def _parser() -> Parser:
    parser = command_parser(NAME, __doc__, EXAMPLES, EXIT_CODES)
    what = parser.add_argument_group("sides to compare")
    what.add_argument(
        "selections", nargs="*", metavar="SELECTION", help="two selections; with --by one, or none for all results"
    )
    first = "eager or float32, or what was measured first"
    profiles = "compare the newest profiles of two selections, by layer, module and operator"
    add_flags(
        what,
        Setting("by", WORD, f"field whose values are compared: {', '.join(BY)}", metavar="FIELD"),
        Setting("baseline", WORD, "value of --by to compare the others with", metavar="VALUE", default_words=first),
        Setting("profiles", SWITCH, profiles, other_flags=("--profile",)),
    )
    add_settings(what, COMMON, "metric", "across", lists=("across",))
    output = parser.add_argument_group("output")
    add_settings(output, COMMON, "only_changes", "junit")
    output.add_argument(FLAG, type=conditions, default=(), metavar="VERDICTS", help=HELP)
    form = output.add_mutually_exclusive_group()
    add_shared(form, json="comparison as JSON", markdown="comparison as Markdown, for a pull request comment")
    add_database(parser)
    return parser


def _why_empty(comparison: Comparison, by: str | None) -> str:
    if comparison.findings:
        return "the reasons are given above"
    if not comparison.after:
        if not comparison.before:
            return "no results are selected"
        if by is None:
            return f"there is only {comparison.before}"
        how = f"store another one first, as benchhouse {BY[by]} --save"
        return f"all selected results have one value of {by}, {comparison.before}: {how}"
    sides = (("A", comparison.before, comparison.only_before), ("B", comparison.after, comparison.only_after))
    empty_sides = [f"{name} ({text}) selects no results" for name, text, singles in sides if not singles]
    return "; ".join(empty_sides) or "no point is on both sides"


if __name__ == "__main__":
    sys.exit(main())
