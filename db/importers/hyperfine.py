"""hyperfine's JSON (--export-json): a run for each command, with one value in s per execution in a fresh process.

The file names neither date nor machine. Numeric parameters of a command are axes.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarking.core.metrics import MS_PER_S, bytes_to_mb
from benchmarking.core.records import Doubt, Json
from db.importers.support.building import ForeignRun, Format
from db.importers.support.files import ForeignFile
from db.importers.support.measures import block, foreign_result, in_ms, median_of
from db.importers.support.names import arguments_of
from db.importers.support.reading import Fields, mostly, parsed_number, top_fields, understood

STATED = {name: f"latency_{name}_ms" for name in ("mean", "median", "min", "max")} | {"stddev": "latency_std_ms"}
CPU = {"user": "cpu_user_ms", "system": "cpu_system_ms"}
DEFINITIONS = {
    "latency_wall": "wall time of a run of the command: start of its process to its end, less the time of an empty "
    "shell where it ran in one",
    "cpu_user_ms": "CPU time of the command in user mode, mean over its runs",
    "cpu_system_ms": "CPU time of the command in the kernel, mean over its runs",
    "process_peak_rss_mb": "memory_usage_byte: highest resident size of a run, median over the runs",
}


def recognises(file: ForeignFile) -> bool:
    results = file.json.get("results") if isinstance(file.json, dict) else None
    return isinstance(results, list) and mostly(
        results, lambda one: isinstance(one, dict) and {"command", "mean", "user", "system"} <= one.keys()
    )


def read(file: ForeignFile) -> Iterator[ForeignRun]:
    results = enumerate(top_fields(file).objects("results") or ())
    yield from understood(file, results, lambda one: _run(one[1], one[0]))


def _run(result: Fields, index: int) -> ForeignRun:
    command = result.required(result.text, "command")
    parameters = result.section("parameters")
    found = {name: parsed_number(str(parameters.any(name))) for name in parameters}
    if "parameter" in result:  # versions before 1.11 have one, without its name
        found["parameter"] = parsed_number(str(result.any("parameter")))
    arguments = arguments_of(command or "unknown", found)
    seconds, memory = result.numbers("times", low=0), result.numbers("memory_usage_byte", low=0)
    means = {column: result.scaled(name, MS_PER_S) for name, column in CPU.items()}
    # A doubt if the command failed (hyperfine --ignore-failure): it may not have done its work.
    codes = result.items("exit_codes")
    failed = [code for code in codes if code != 0]
    evidence: dict[str, Json] = {"n": len(failed), "of": len(codes)}
    measured = foreign_result(
        arguments.point,
        samples=[block(0, in_ms(seconds))] if seconds else [],
        metrics={**means, "process_peak_rss_mb": bytes_to_mb(median_of(memory)) if memory else None},
        stated={column: result.scaled(name, MS_PER_S) for name, column in STATED.items()},
        doubts=[Doubt(kind="command_failed", severity="invalid", evidence=evidence)] if failed else [],
    )
    return ForeignRun(
        key=f"{index} {command}",
        runtime="native",
        runtime_mode=arguments.mode,
        command=(command,),
        results=[measured],
        kept=result.rest(),
        **{"device_type": "cpu", **arguments.setup},
    )


PLUGIN = Format(
    name="hyperfine",
    summary="hyperfine: --export-json",
    definition="hyperfine",
    definitions=DEFINITIONS,
    recognises=recognises,
    read=read,
)
