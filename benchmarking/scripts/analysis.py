"""Finds the models that a script calls, with their inputs, number of calls and time.

The script runs to its end, in a separate process. As that process, this module reads a request as JSON from stdin and
writes the answer as JSON to stdout. Output of the script goes to stderr, which the caller saves in a log.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import field, replace
from pathlib import Path

from benchmarking.core.child_process import claimed_stdout, run_module
from benchmarking.core.errors import UsageError, first_line, storage_errors
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.records import Workload, dumps, from_json
from benchmarking.core.untrusted.redaction import without_secrets
from benchmarking.workloads.support.given_modules import GivenModule, describe, read_sequence, recorded_calls
from benchmarking.workloads.support.script_runs import watch_script

MODULE = "benchmarking.scripts.analysis"
REFUSED = "refused"
"""The key of an answer to an invalid request."""
LAST_LOG_CHARACTERS = 1_000_000
"""Maximum size of the end of a script's output that is kept."""
TENSORFLOW_MODELS = (
    "no torch module was called, and the script imports tensorflow: tf.keras models run in TensorFlow, which is not "
    "supported; use Keras 3 with its torch backend (KERAS_BACKEND=torch)"
)
KERAS_ELSEWHERE = "{elsewhere}, which is not supported; use Keras 3 with its torch backend (KERAS_BACKEND=torch)"
NO_MODELS = "the script called no torch.nn.Module: plain functions cannot be measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptRequest:
    path: str
    """Absolute."""
    arguments: tuple[str, ...] = ()
    max_depth: int = 0
    """Levels of submodules to include below the modules that the script calls."""
    sequence: str | None = None
    """Absolute path of a file with the build stages."""
    batch_size: int | None = None
    """How many items each call holds; None to infer it from the inputs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """The models found in a script."""

    request: ScriptRequest
    modules: tuple[GivenModule, ...] = ()
    error: str | None = None
    """Why the script failed, or why no models were found."""
    traceback: str | None = None
    """The whole traceback of that failure, if Python has one."""
    log: str | None = None
    """The file with the output of the script; None without one."""
    chosen: tuple[int, ...] = field(default=())
    """The numbers of the modules to measure."""

    @property
    def name(self) -> str:
        return Path(self.request.path).name

    def workload(self, module: GivenModule) -> Workload:
        """A module as a workload, named after script and class: "example.Net", or "example.Net-2" for a second one."""
        earlier = (other.class_name for other in self.modules if other.number < module.number)
        before = Counter(earlier)[module.class_name]
        name = f"{Path(self.request.path).stem}.{module.class_name}" + (f"-{before + 1}" if before else "")
        return module.workload(name, Path(self.request.path))

    @property
    def selected(self) -> tuple[GivenModule, ...]:
        return tuple(module for module in self.modules if module.number in self.chosen)


def analyse(request: ScriptRequest, log: Path | None = None, limit_s: float | None = None) -> Analysis:
    """The models of a script, found by running it in a child process. If the script fails, the result contains the
    models called until then and the error. Its output goes to `log`. Raises UsageError for an invalid stages file.
    """
    done = run_module(MODULE, input_text=dumps(request), limit_s=limit_s)
    if log is not None:
        with storage_errors(f"cannot write {log}", "choose another folder with --cache-dir"):
            log.parent.mkdir(parents=True, exist_ok=True)
            log.write_text(without_secrets(done.stderr)[-LAST_LOG_CHARACTERS:], encoding="utf-8")
    log_text = None if log is None else str(log)
    last_line = done.stdout.rstrip("\n").rpartition("\n")[2]
    if done.exit_code == 0 and last_line:
        answer = json.loads(last_line)
        if (refused := answer.get(REFUSED)) is not None:
            raise UsageError(refused)
        return replace(from_json(Analysis, answer, MODULE), request=request, log=log_text)
    if done.exit_code is None:
        why = f"it did not finish within {limit_s:g} s: raise --timeout"
    elif done.exit_code == 0:
        why = "it ended its process without Python's exit (os._exit), with what was found: use sys.exit"
    else:
        why = f"its process ended with exit code {done.exit_code}: {done.last_line or 'nothing on stderr'}"
    return Analysis(request=request, error=why, log=log_text)


def analysed(request: ScriptRequest) -> Analysis:
    sequence = None if request.sequence is None else read_sequence(Path(request.sequence))
    run = watch_script(Path(request.path), request.arguments, request.max_depth)
    modules: list[GivenModule] = []
    left_out = list(run.unrecorded)
    for seen in run.modules:
        try:
            modules.append(
                describe(
                    seen.module,
                    seen.hash,
                    recorded_calls(
                        seen.module,
                        [call.arguments for call in seen.calls],
                        [call.executions for call in seen.calls],
                        request.batch_size,
                    ),
                    script=Path(request.path).name,
                    script_arguments=request.arguments,
                    line=seen.line,
                    number=seen.number,
                    max_depth=request.max_depth,
                    depth=seen.depth,
                    parent=seen.parent,
                    executions=seen.executions,
                    seconds=seen.seconds,
                    further_executions=seen.further_executions,
                    sequence=sequence,
                    batch_size=request.batch_size,
                )
            )
        except (RuntimeError, TypeError, ValueError) as error:  # of tensors that numpy cannot hold
            where = f"{type(seen.module).__name__}, called in line {seen.line}"
            left_out.append(f"{where}, cannot be measured: {type(error).__name__}: {first_line(error)}")
    why = run.error
    if why is None and run.other_backend is not None:
        why = KERAS_ELSEWHERE.format(elsewhere=run.other_backend)
    elif why is None and left_out:
        why = "; ".join(left_out)
    elif why is None and not run.modules:
        why = TENSORFLOW_MODELS if run.imports_tensorflow else NO_MODELS
    return Analysis(request=request, modules=tuple(modules), error=why, traceback=run.traceback)


def choose(analysis: Analysis, hashes: Sequence[str]) -> tuple[int, ...]:
    """The numbers of the modules with these hashes; all if no hashes are given. Raises UsageError for an unknown
    hash."""
    if not hashes:
        return tuple(module.number for module in analysis.modules)
    for prefix in hashes:
        if not any(module.hash.startswith(prefix) for module in analysis.modules):
            known = ", ".join(f"{module.short_hash} ({module.class_name})" for module in analysis.modules) or "none"
            raise UsageError(f"{analysis.name}::{prefix}: no model with this hash; found {known}")
    return tuple(module.number for module in analysis.modules if module.hash.startswith(tuple(hashes)))


def main() -> int:
    """Answer the request on stdin."""
    home = claimed_stdout()  # what the script prints is in the log before its traceback
    request = from_json(ScriptRequest, json.load(sys.stdin), "request")
    try:
        answer = dumps(analysed(request))
    except UsageError as error:
        answer = json.dumps({REFUSED: str(error)})
    print(answer, file=home, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
