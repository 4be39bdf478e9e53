"""Lists and deletes cached artifacts: exports, engines, compiled code, reference outputs and FLOP counts of old runs.

list    one row per build: kind, model, precision, size, build time, last use, digest; then one per model of
        a script: inputs, runtimes, opset, number of results
print   everything about one build: its inputs, its files, and the results of a script's model
stats   number and total size of builds by kind, and free disk space; for a script's model its results
delete  builds by digest, kind, model or age, or a script's model by name; incomplete builds and
        stale locks are always deleted
report  the list as CSV, including runtime, opset, inputs and latency of script builds

Nothing outside the cache folder is touched; symbolic links in it and builds in progress are skipped. Deleted builds are
rebuilt when needed.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarking.builds.inventory import (
    BuildSelection,
    CachedBuild,
    Contents,
    Leftover,
    delete_folders,
    read_contents,
    select_builds,
    sweep_leftovers,
)
from benchmarking.builds.store import Build, BuildStore
from benchmarking.core.argument_types import non_negative_number
from benchmarking.core.command_line import Parser, command, note
from benchmarking.core.command_names import as_typed
from benchmarking.core.errors import EXIT_FAILED, EXIT_OK, StorageError, UsageError, storage_errors
from benchmarking.core.help_texts import many_need
from benchmarking.core.records import Json, to_json
from benchmarking.core.settings import NEW_FILE, add_settings
from benchmarking.core.shared_settings import COMMON, SHARED
from benchmarking.core.tables import Table, table_text
from benchmarking.core.terminal import PLAIN, Page, data_stream, stdout_page
from benchmarking.core.text import size_text, spreadsheet_safe, time_text, visible
from benchmarking.scripts import states
from benchmarking.scripts.states import results_table, state_text, states_table
from benchmarking.sweep.plan import flags
from benchmarking.sweep.plan.measuring_settings import MEASURING

NAME = "manage_cache"
EXAMPLES = """\
examples:
  benchhouse cache list
  benchhouse cache print example_d5b1ab77
  benchhouse cache delete --kind onnx --older-than 30
"""


@command(NAME)
def main(argv: Sequence[str]) -> int:
    """Run the command; returns its exit code."""
    parser = Parser(
        prog=NAME, description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True, parser_class=Parser)
    for name, action, what in (
        ("list", _list, "list every build"),
        ("stats", _stats, "show number and total size of builds by kind, and free disk space"),
    ):
        one = _action(actions, name, action, what)
        add_settings(one, SHARED, "json")
        if name == "stats":
            one.add_argument(
                "build",
                nargs="?",
                metavar="BUILD",
                help="model of a script whose results to show (default: all builds)",
            )
    shown = _action(actions, "print", _print, "show everything about one build")
    shown.add_argument("build", metavar="BUILD", help="name of a script's model, or digest, or a unique prefix")
    add_settings(shown, SHARED, "json")
    selection = _action(actions, "delete", _delete, "delete builds").add_argument_group(
        "selection", "A build is deleted if it meets all of these conditions."
    )
    selection.add_argument(
        "digest",
        nargs="*",
        metavar="DIGEST",
        help="digest, or name of a script's model, or a unique prefix of either (default: any)",
    )
    selection.add_argument(
        "--kind", metavar="KIND", help="kind from the list, such as onnx or reference (default: any)"
    )
    selection.add_argument("--model", metavar="MODEL", help="model the build was made from (default: any)")
    selection.add_argument(
        "--older-than",
        type=non_negative_number,
        metavar="DAYS",
        help="minimum days since the last use (default: any)",
    )
    selection.add_argument("--all", action="store_true", help="all builds; requires --yes")
    add_settings(selection, COMMON, "yes", helps={"yes": "confirmation of --all"})
    report = _action(actions, "report", _report, "write the list as CSV")
    add_settings(
        report,
        COMMON,
        "output",
        kinds={"output": NEW_FILE},
        helps={"output": "CSV file"},
        default_words={"output": "stdout"},
    )
    arguments = parser.parse_args(argv)
    flags.use_cache_dir(arguments.cache_dir, writes=False)
    root = BuildStore().root
    contents = read_contents(root)
    code: int = arguments.action(root, contents, arguments)
    return code


def _list(root: Path, contents: Contents, arguments: argparse.Namespace) -> int:
    if arguments.json:
        print(json.dumps(list_json(contents), indent=1))
    else:
        page, script_states = stdout_page(), states.all_states()
        broken = [f"broken: {visible(why)}" for why in states.broken_states().values()]
        parts = [
            list_text(root, contents, page),
            states_table(script_states, page) if script_states else "",
            "\n".join(broken),
        ]
        print("\n\n".join(filter(None, parts)))
    return EXIT_OK


def _print(root: Path, contents: Contents, arguments: argparse.Namespace) -> int:
    state = _state(arguments.build, contents)
    if state is not None:
        print(json.dumps(to_json(state), indent=1) if arguments.json else state_text(state, stdout_page()))
        return EXIT_OK
    (folder,) = select_builds(contents, BuildSelection(digests=(arguments.build,)), confirmed=False)
    build = next((one.build for one in contents.builds if one.folder == folder), None)
    if build is None:
        raise StorageError(f"{folder} has no valid record: delete it, and it will be rebuilt when needed")
    print(json.dumps(to_json(build), indent=1) if arguments.json else build_text(build, folder))
    return EXIT_OK


def _stats(root: Path, contents: Contents, arguments: argparse.Namespace) -> int:
    if arguments.build is not None:  # the results of a script's model
        state = states.named(arguments.build)
        if arguments.json:
            print(json.dumps([to_json(result) for result in state.results], indent=1))
        elif state.results:
            print(results_table(state.results, stdout_page()))
        else:
            print(state_text(state, stdout_page()))
    elif arguments.json:
        print(json.dumps(stats_json(root, contents), indent=1))
    else:
        print(stats_text(root, contents, stdout_page()))
    return EXIT_OK


def _state(name: str, contents: Contents) -> states.ScriptState | None:
    """The state of the script's model with this name; None if it is the digest of a build. Raises UsageError if it is
    neither."""
    folders = [*(build.folder for build in contents.builds), *(build.folder for build in contents.broken)]
    if name and any(folder.name.startswith(name) for folder in folders):
        return None
    try:
        return states.named(name)
    except UsageError as error:
        raise UsageError(f"{error}; no build has this digest either: see {as_typed('cache')} list") from error


def _report(root: Path, contents: Contents, arguments: argparse.Namespace) -> int:
    text = csv_text(contents)
    if arguments.output is None:
        data_stream().write(text)
        return EXIT_OK
    path = Path(arguments.output)
    with storage_errors(f"cannot write {path}"):
        path.write_text(text, encoding="utf-8", newline="")
    note(f"report: {path}")
    return EXIT_OK


def _delete(root: Path, contents: Contents, arguments: argparse.Namespace) -> int:
    script_states = {state.name: state for state in states.all_states()}
    known = (*script_states, *states.broken_states())
    existing = {build.build.digest for build in contents.builds}
    folders = [*(build.folder for build in contents.builds), *(build.folder for build in contents.broken)]
    names, digests = list[str](), list[str]()
    for word in arguments.digest:
        if word in known:
            names.append(word)
        elif any(folder.name.startswith(word) for folder in folders) or not known:
            digests.append(word)
        else:
            names.append(states.named(word).name)
    engines = [engine for name in names if name in script_states for engine in script_states[name].engines]
    digests += [digest for engine in engines for digest in engine.digests if digest in existing]
    states.remove(known if arguments.all and arguments.yes else names)
    for name in names:
        print(f"{name} deleted")
    if names and not digests:
        return EXIT_OK
    choice = BuildSelection(
        digests=tuple(digests),
        kind=arguments.kind,
        model=arguments.model,
        older_than_days=arguments.older_than,
        everything=arguments.all,
    )
    freed = delete_folders(root, select_builds(contents, choice, confirmed=arguments.yes))
    swept = sweep_leftovers(root, read_contents(root))
    builds = "build" if freed.count == 1 else "builds"
    print(f"{freed.count} {builds} deleted, {size_text(freed.size_bytes)} freed")
    if swept.size_bytes:
        print(f"incomplete builds deleted, {size_text(swept.size_bytes)} freed")
    for path in freed.in_use:
        note(f"skipped: {path}: the build is in progress")
    return EXIT_FAILED if freed.in_use else EXIT_OK


def _action(actions: argparse._SubParsersAction[Parser], name: str, action: object, what: str) -> Parser:
    parser = actions.add_parser(name, help=what, description=f"{what[0].upper()}{what[1:]}.")
    cache = parser.add_argument_group("cache")
    add_settings(cache, MEASURING, "cache_dir")
    many_need(*cache._group_actions)
    parser.set_defaults(action=action)
    return parser


HEADINGS = ("kind", "model", "precision", "size", "made", "last used", "digest")

STATS_HEADINGS = ("kind", "builds", "size")

FIELDS = (
    *("kind", "model_id", "task", "precision", "size_bytes", "made_at", "last_used_at", "build_s", "digest", "folder"),
    *("runtime", "opset", "inputs", "mean_latency_ms"),
)
"""Columns of the CSV report, and keys of a build in JSON."""

SHORT = 12


def list_text(root: Path, contents: Contents, page: Page = PLAIN) -> str:
    """A row per build, then broken and incomplete builds and links."""
    if not contents.builds and not contents.broken:
        return "\n".join([f"no builds in {root}", *_troubles(contents)])
    rows = []
    for build in contents.builds:
        what = (build.build.kind, build.model_id or "-", build.precision or "-", size_text(build.size_bytes))
        when = (build.build.made_at[:16], time_text(build.last_used_s)[:16])
        rows.append((*what, *when, build.build.digest[:SHORT]))
    table = Table(headings=HEADINGS, rows=tuple(rows), numbers=(3,), keys=2)
    return "\n".join([table_text(table, page), *_troubles(contents)])


def list_json(contents: Contents) -> dict[str, Json]:
    """`builds`, `scripts` (the content of their state.yaml), `broken` and `broken_scripts` (with the reason),
    `leftovers` and `links`."""
    script_states = states.all_states()
    return {
        "builds": [_row(build, script_states) for build in contents.builds],
        "scripts": [to_json(state) for state in script_states],
        "broken": [
            {"folder": str(build.folder), "why": build.why, "size_bytes": build.size_bytes} for build in contents.broken
        ],
        "broken_scripts": dict[str, Json](states.broken_states()),
        "leftovers": [
            {"path": str(leftover.path), "size_bytes": leftover.size_bytes} for leftover in _incomplete(contents)
        ],
        "links": [str(link) for link in contents.links],
    }


def stats_json(root: Path, contents: Contents) -> dict[str, Json]:
    """Builds and bytes by kind and in total, bytes of broken and incomplete builds, free bytes on the disk."""
    return {
        "folder": str(root),
        "kinds": {kind: {"builds": len(sizes), "size_bytes": sum(sizes)} for kind, sizes in _by_kind(contents).items()},
        "builds": len(contents.builds),
        "size_bytes": sum(build.size_bytes for build in contents.builds),
        "useless_bytes": _useless_bytes(contents),
        "free_bytes": free_bytes(root),
    }


def stats_text(root: Path, contents: Contents, page: Page = PLAIN) -> str:
    """The same as a table."""
    by_kind = _by_kind(contents)
    by_kind["all"] = [build.size_bytes for build in contents.builds]
    rows = tuple((kind, str(len(sizes)), size_text(sum(sizes))) for kind, sizes in by_kind.items())
    useless = _useless_bytes(contents)
    return "\n".join(
        [
            f"in {root}",
            table_text(Table(headings=STATS_HEADINGS, rows=rows, numbers=(1, 2)), page),
            *([f"broken or incomplete: {size_text(useless)}"] if useless else []),
            f"free on this disk: {size_text(free_bytes(root))}",
        ]
    )


def csv_text(contents: Contents) -> str:
    """A line per build with the columns `FIELDS`; lines end with CR LF, as in RFC 4180."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, FIELDS)
    writer.writeheader()
    script_states = states.all_states()
    for build in contents.builds:
        cells = _row(build, script_states).items()
        writer.writerow({name: spreadsheet_safe(cell) if isinstance(cell, str) else cell for name, cell in cells})
    return text.getvalue()


def free_bytes(root: Path) -> int:
    """Free bytes on the disk of the folder, which may not exist yet."""
    place = next(folder for folder in (root, *root.parents) if folder.exists())
    return shutil.disk_usage(place).free


def _row(one: CachedBuild, script_states: Sequence[states.ScriptState] = ()) -> dict[str, Any]:
    """A build as a row, with the latest results if it belongs to a script's model."""
    build = one.build
    used = [(state, engine) for state in script_states for engine in state.engines if build.digest in engine.digests]
    measured = [
        result.mean_latency
        for state, engine in used
        for result in state.results
        if (result.runtime, result.device, result.precision) == (engine.runtime, engine.device, engine.precision)
    ]
    return {
        "kind": one.build.kind,
        "model_id": one.model_id,
        "task": one.build.parts.get("task"),
        "precision": one.precision,
        "size_bytes": one.size_bytes,
        "made_at": one.build.made_at,
        "last_used_at": time_text(one.last_used_s),
        "build_s": one.build.build_s,
        "digest": one.build.digest,
        "folder": str(one.folder),
        "runtime": ", ".join(dict.fromkeys(engine.runtime for _, engine in used)) or build.parts.get("runtime"),
        "opset": build.parts.get("opset"),
        "inputs": "; ".join(dict.fromkeys(state.shapes for state, _ in used)) or None,
        "mean_latency_ms": min((value for value in measured if value is not None), default=None),
    }


def build_text(build: Build, folder: Path) -> str:
    """All inputs of a build, and the facts found while building it."""
    inputs: dict[str, Any] = {
        **build.parts,
        **build.facts,
        "made_at": build.made_at,
        "build_s": build.build_s,
        "size": size_text(build.size_bytes),
        "folder": folder,
    }
    lines = [f"  {key:<18}  {value}" for key, value in inputs.items() if value not in (None, "", [], {})]
    return "\n".join([f"{build.kind} {build.digest}", *map(visible, lines)])


def _troubles(contents: Contents) -> list[str]:
    lines = [f"broken: {build.folder}: {build.why}" for build in contents.broken]
    lines += [f"incomplete: {leftover.path}: {size_text(leftover.size_bytes)}" for leftover in _incomplete(contents)]
    lines += [f"skipped: {link}: a symbolic link" for link in contents.links]
    return [visible(line) for line in lines]


def _by_kind(contents: Contents) -> dict[str, list[int]]:
    """The builds' sizes in bytes."""
    kinds: dict[str, list[int]] = {}
    for build in contents.builds:
        kinds.setdefault(build.build.kind, []).append(build.size_bytes)
    return kinds


def _useless_bytes(contents: Contents) -> int:
    sizes = [build.size_bytes for build in contents.broken]
    return sum(sizes) + sum(leftover.size_bytes for leftover in _incomplete(contents))


def _incomplete(contents: Contents) -> list[Leftover]:
    """Folders of interrupted builds, without lock files."""
    return [leftover for leftover in contents.leftovers if leftover.path != leftover.lock]
