"""Finds the benchmarks in a folder. Their files are imported by a process of its own, so this one stays as it is."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from benchmarking.benches.config import BenchmarkConfig
from benchmarking.benches.model_benchmark import TimedBy
from benchmarking.core.child_process import run_module
from benchmarking.errors import UsageError
from benchmarking.records import from_json

TIME_LIMIT_S = 300.0
"""For importing all files: the first import of torch from a slow disk takes a minute."""
EXAMPLES = Path(__file__).with_name("examples")
"""The folder of the benchmarks that ship as examples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """A class somebody wrote, as it was found, with what it is to be measured on."""

    path: str
    """Its file."""
    class_name: str
    configs: tuple[BenchmarkConfig, ...]
    devices: tuple[str, ...]
    """Kinds of device it runs on; empty for any."""
    timed_by: TimedBy
    task: str
    is_mock: bool

    @property
    def label(self) -> str:
        """For people: file and class."""
        return f"{Path(self.path).stem}.{self.class_name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovery:
    """What a folder holds."""

    benches: tuple[Bench, ...]
    """To be measured, in the order of their files."""
    left_out: Mapping[str, str]
    """Label -> why it is not to be measured."""


def discover(
    folder: Path, *, include: Sequence[str] = (), exclude: Sequence[str] = (), enable_mock: bool = False
) -> Discovery:
    """The benchmarks in a folder and those below it, in every `*.py` whose name does not begin with "_" or ".".

    A pattern ("bert*") is held against the file's name, the class's, "file.Class" and each config's name. `include`
    keeps what matches one of its patterns, `exclude` drops it; a file whose name is excluded is not imported. Mock
    benchmarks are left out unless they are enabled.

    Raises UsageError for a folder that is not there, for a file that cannot be imported (with the line), and when
    nothing is left.
    """
    files = [path for path in _files(folder) if not _matches(exclude, _names_of_file(path, folder))]
    kept, left_out = [], {}
    for bench in _listed(files):
        configs = tuple(config for config in bench.configs if _wanted(bench, config, folder, include, exclude))
        if bench.is_mock and not enable_mock:
            left_out[bench.label] = "a mock: --enable-mock runs it"
        elif not configs:
            left_out[bench.label] = "left out by --include and --exclude"
        else:
            kept.append(replace(bench, configs=configs))
    if not kept:
        reasons = "; ".join(f"{label}: {why}" for label, why in left_out.items())
        raise UsageError(f"--benches {folder}: no benchmark to run" + (f" ({reasons})" if reasons else " in it"))
    return Discovery(benches=tuple(kept), left_out=left_out)


def _files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise UsageError(f"--benches {folder}: there is no such folder")
    root = folder.resolve()
    found = sorted(root.rglob("*.py"))
    return [path for path in found if not any(part[0] in "._" for part in path.relative_to(root).parts)]


def _names_of_file(path: Path, folder: Path) -> tuple[str, ...]:
    return (path.stem, path.name, path.relative_to(folder.resolve()).as_posix())


def _wanted(
    bench: Bench, config: BenchmarkConfig, folder: Path, include: Sequence[str], exclude: Sequence[str]
) -> bool:
    names = (*_names_of_file(Path(bench.path), folder), bench.class_name, bench.label, config.name)
    return (not include or _matches(include, names)) and not _matches(exclude, names)


def _matches(patterns: Sequence[str], names: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns for name in names)


def _listed(files: Sequence[Path]) -> list[Bench]:
    """What the files hold. Raises UsageError for the first that cannot be imported."""
    if not files:
        return []
    answers = _answers(files)
    benches, errors, importing = [], [], ""
    for answer in answers.lines:
        importing = answer.get("importing", "" if "benches" in answer or "error" in answer else importing)
        benches += [from_json(Bench, each) for each in answer.get("benches", ())]
        errors += [answer["error"]] if "error" in answer else []
    if importing:
        errors.append(f"{importing}: importing it {answers.end}")
    elif not errors and answers.failed:
        errors.append(f"listing the benchmarks {answers.end}")
    if errors:
        more = f" (and {len(errors) - 1} more such files)" if len(errors) > 1 else ""
        raise UsageError(f"{errors[0]}{more}; --exclude leaves a file out by its name")
    return benches


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answers:
    """What the listing process said, and how it ended."""

    lines: list[dict[str, Any]]
    end: str
    failed: bool


def _answers(files: Sequence[Path]) -> _Answers:
    question = json.dumps([str(file) for file in files])
    done = run_module("benchmarking.benches._listing", question=question, limit_s=TIME_LIMIT_S)
    if done.exit_code is None:
        return _Answers(lines=_lines(done.stdout), end=f"took longer than {TIME_LIMIT_S:g} s", failed=True)
    end = f"ended the process with exit code {done.exit_code}" + (f": {done.last_line}" if done.last_line else "")
    return _Answers(lines=_lines(done.stdout), end=end, failed=done.exit_code != 0)


def _lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines() if line.endswith("}")]
