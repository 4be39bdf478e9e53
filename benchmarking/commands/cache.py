"""Lists and deletes cached artifacts: exports, engines, compiled code, reference outputs and FLOP counts of old runs.

list    one row per build: kind, model, precision, size, build time, last use, digest; then one per model of
        a script: inputs, runtimes, opset, number of results
print   everything about one build: its inputs, its files, and the results of a script's model
stats   number and total size of builds by kind, and free disk space; for a script's model its results
delete  builds by digest, kind, model or age, or a script's model by name, with its results unless a
        kind, model or age chooses among its builds; incomplete builds and stale locks are always deleted
report  the list as CSV, including runtime, opset, inputs and latency of script builds; models of scripts whose
        runtime builds nothing, or whose builds are deleted, have a row of kind "script"

Nothing outside the cache folder is touched; symbolic links in it and builds in progress are skipped. Deleted builds are
rebuilt when needed.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import shutil
from collections.abc import Iterable, Sequence
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
from benchmarking.builds.store import BuildStore
from benchmarking.core.command_line import Parser, command, note
from benchmarking.core.command_names import as_typed
from benchmarking.core.errors import EXIT_FAILED, EXIT_OK, StorageError, UsageError, storage_errors
from benchmarking.core.help_texts import few_need
from benchmarking.core.records import to_json
from benchmarking.core.settings import NEW_FILE, NUMBER_FROM_0, SWITCH, WORD, Setting, add_flags, add_settings
from benchmarking.core.shared_settings import COMMON, SHARED
from benchmarking.core.tables import Table, table_text
from benchmarking.core.terminal import data_stream, stdout_page
from benchmarking.core.text import grouped, size_text, spreadsheet_safe, time_text, visible
from benchmarking.scripts import states
from benchmarking.scripts.states import results_table, state_text, states_table
from benchmarking.sweep.plan import flags
from benchmarking.sweep.plan.measuring_settings import MEASURING

NAME = "manage_cache"
HEADINGS = ("kind", "model", "precision", "size", "made", "last used", "digest")
STATS_HEADINGS = ("kind", "builds", "size")
FIELDS = (
    *("kind", "model_id", "task", "precision", "size_bytes", "made_at", "last_used_at", "build_s", "digest", "folder"),
    *("runtime", "opset", "inputs", "mean_latency_ms", "device"),
)
"""Columns of the CSV report, and keys of a build in JSON."""
SCRIPT = "script"
"""Kind of a row for a script's model without a build."""
SHORT = 12
"""Digits shown of a digest."""
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
            of_build = "model of a script whose results to show (default: all builds)"
            one.add_argument("build", nargs="?", metavar="BUILD", help=of_build)
    shown = _action(actions, "print", _print, "show everything about one build")
    shown.add_argument("build", metavar="BUILD", help="name of a script's model, or digest, or a unique prefix")
    add_settings(shown, SHARED, "json")
    selection = _action(actions, "delete", _delete, "delete builds").add_argument_group(
        "selection", "A build is deleted if it meets all of these conditions."
    )
    what = "digest, or name of a script's model, or a unique prefix of either (default: any)"
    selection.add_argument("digest", nargs="*", metavar="DIGEST", help=what)
    add_flags(
        selection,
        Setting("kind", WORD, "kind from the list, such as onnx or reference", metavar="KIND", default_words="any"),
        Setting("model", WORD, "model the build was made from", metavar="MODEL", default_words="any"),
        Setting("older_than", NUMBER_FROM_0, "minimum days since the last use", metavar="DAYS", default_words="any"),
        Setting("all", SWITCH, "all builds; requires --yes"),
        COMMON["yes"].here(help="confirmation of --all"),
    )
    report = _action(actions, "report", _report, "write the list as CSV")
    add_flags(report, COMMON["output"].here(kind=NEW_FILE, help="CSV file", default_words="stdout"))
    arguments = parser.parse_args(argv)
    flags.use_cache_dir(arguments.cache_dir, writes=False)
    root = BuildStore().root
    contents = read_contents(root)
    code: int = arguments.action(root, contents, arguments)
    return code


def _list(root: Path, contents: Contents, arguments: argparse.Namespace) -> int:
    """A row per build, then broken and incomplete builds and links, then the models of scripts. In JSON these are
    `builds`, `scripts` (the content of their state.yaml), `broken` and `broken_scripts` (with the reason), `leftovers`
    and `links`."""
    by_name, broken_scripts = states.all_states()
    script_states, incomplete = tuple(by_name.values()), _incomplete(contents)
    if arguments.json:
        document = {
            "builds": [_row(build, script_states) for build in contents.builds],
            "scripts": [to_json(state) for state in script_states],
            "broken": [
                {"folder": str(one.folder), "why": one.why, "size_bytes": one.size_bytes} for one in contents.broken
            ],
            "broken_scripts": dict(broken_scripts),
            "leftovers": [{"path": str(one.path), "size_bytes": one.size_bytes} for one in incomplete],
            "links": [str(link) for link in contents.links],
        }
        print(json.dumps(document, indent=1))
        return EXIT_OK
    page, rows = stdout_page(), []
    for build in contents.builds:
        what = (build.build.kind, build.model_id or "-", build.precision or "-", size_text(build.size_bytes))
        when = (build.build.made_at[:16], time_text(build.last_used_s)[:16])
        rows.append((*what, *when, build.build.digest[:SHORT]))
    lines = [f"no builds in {root}"]
    if contents.builds or contents.broken:
        lines = [table_text(Table(headings=HEADINGS, rows=tuple(rows), numbers=(3,), keys=2), page)]
    lines += [visible(f"broken: {one.folder}: {one.why}") for one in contents.broken]
    lines += [visible(f"incomplete: {one.path}: {size_text(one.size_bytes)}") for one in incomplete]
    lines += [visible(f"skipped: {link}: a symbolic link") for link in contents.links]
    broken = "\n".join(f"broken: {visible(why)}" for why in broken_scripts.values())
    parts = ["\n".join(lines), states_table(script_states, page) if script_states else "", broken]
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
    if arguments.json:
        print(json.dumps(to_json(build), indent=1))
        return EXIT_OK
    facts: dict[str, Any] = {
        **build.parts,
        **build.facts,
        "made_at": build.made_at,
        "build_s": build.build_s,
        "size": size_text(build.size_bytes),
        "folder": folder,
    }
    lines = [f"  {key:<18}  {value}" for key, value in facts.items() if value not in (None, "", [], {})]
    print("\n".join([f"{build.kind} {build.digest}", *map(visible, lines)]))
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
        return EXIT_OK
    sizes = [build.size_bytes for build in contents.builds]
    kinds = grouped((build.build.kind, build.size_bytes) for build in contents.builds)
    useless = sum(one.size_bytes for one in contents.broken) + sum(one.size_bytes for one in _incomplete(contents))
    place = next(folder for folder in (root, *root.parents) if folder.exists())  # the cache may not exist yet
    free = shutil.disk_usage(place).free
    if arguments.json:
        document = {
            "folder": str(root),
            "kinds": {kind: {"builds": len(own), "size_bytes": sum(own)} for kind, own in kinds.items()},
            "builds": len(sizes),
            "size_bytes": sum(sizes),
            "useless_bytes": useless,
            "free_bytes": free,
        }
        print(json.dumps(document, indent=1))
        return EXIT_OK
    rows = tuple((kind, str(len(own)), size_text(sum(own))) for kind, own in {**kinds, "all": sizes}.items())
    table = table_text(Table(headings=STATS_HEADINGS, rows=rows, numbers=(1, 2)), stdout_page())
    lines = [f"in {root}", table, *([f"broken or incomplete: {size_text(useless)}"] if useless else [])]
    print("\n".join([*lines, f"free on this disk: {size_text(free)}"]))
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
    text = io.StringIO(newline="")  # lines end with CR LF, as in RFC 4180
    writer = csv.DictWriter(text, FIELDS)
    writer.writeheader()
    script_states, _ = states.all_states()
    rows = [_row(build, script_states.values()) for build in contents.builds]
    existing = {build.build.digest for build in contents.builds}
    rows += [
        {
            "kind": SCRIPT,
            "model_id": state.model_id,
            "precision": engine.precision,
            "made_at": engine.made_at,
            "build_s": engine.build_s,
            "folder": str(state.folder),
            "runtime": engine.runtime,
            "opset": engine.opset,
            "inputs": "; ".join(state.shapes),
            "mean_latency_ms": _latency_ms([(state, engine)]),
            "device": engine.device,
        }
        for state in script_states.values()
        for engine in state.engines
        if existing.isdisjoint(engine.digests)
    ]
    for row in rows:
        cells = row.items()
        writer.writerow({name: spreadsheet_safe(cell) if isinstance(cell, str) else cell for name, cell in cells})
    if arguments.output is None:
        data_stream().write(text.getvalue())
        return EXIT_OK
    path = Path(arguments.output)
    with storage_errors(f"cannot write {path}"):
        path.write_text(text.getvalue(), encoding="utf-8", newline="")
    note(f"report: {path}")
    return EXIT_OK


def _delete(root: Path, contents: Contents, arguments: argparse.Namespace) -> int:
    script_states, broken = states.all_states()
    known = (*script_states, *broken)
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
    choice = BuildSelection(
        digests=tuple(digests),
        kind=arguments.kind,
        model=arguments.model,
        older_than_days=arguments.older_than,
        everything=arguments.all,
    )
    # A script's model without builds selects none, but no digest at all selects every build.
    selected = () if names and not digests else select_builds(contents, choice, confirmed=arguments.yes)
    if (choice.kind, choice.model, choice.older_than_days) == (None, None, None):  # else the results stay
        states.remove(known if arguments.all and not arguments.digest else names)
        for name in names:
            print(f"{name} deleted")
        if names and not digests:
            return EXIT_OK
    freed = delete_folders(root, selected)
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
    few_need(*cache._group_actions, is_rare=False)
    parser.set_defaults(action=action)
    return parser


def _row(one: CachedBuild, script_states: Iterable[states.ScriptState] = ()) -> dict[str, Any]:
    """A build as a row, with the latest results if it belongs to a script's model."""
    build = one.build
    used = [(state, engine) for state in script_states for engine in state.engines if build.digest in engine.digests]
    return {
        "kind": build.kind,
        "model_id": one.model_id,
        "task": build.parts.get("task"),
        "precision": one.precision,
        "size_bytes": one.size_bytes,
        "made_at": build.made_at,
        "last_used_at": time_text(one.last_used_s),
        "build_s": build.build_s,
        "digest": build.digest,
        "folder": str(one.folder),
        "runtime": ", ".join(dict.fromkeys(engine.runtime for _, engine in used)) or build.parts.get("runtime"),
        "opset": build.parts.get("opset"),
        "inputs": "; ".join(dict.fromkeys(shape for state, _ in used for shape in state.shapes)) or None,
        "mean_latency_ms": _latency_ms(used),
        "device": ", ".join(dict.fromkeys(engine.device for _, engine in used)) or None,
    }


def _latency_ms(used: Iterable[tuple[states.ScriptState, states.BuildRecord]]) -> float | None:
    """The lowest mean latency of the results with these builds."""
    measured = [
        result.mean_latency
        for state, engine in used
        for result in state.results
        if (result.runtime, result.device, result.precision) == (engine.runtime, engine.device, engine.precision)
    ]
    return min((value for value in measured if value is not None), default=None)


def _incomplete(contents: Contents) -> list[Leftover]:
    """Folders of interrupted builds, without lock files."""
    return [leftover for leftover in contents.leftovers if leftover.path != leftover.lock]
