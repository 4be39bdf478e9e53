"""A benchmark's file as a module, and the benchmarks in it. This runs people's code: only in processes of its own."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import sys
import traceback
from pathlib import Path
from types import ModuleType

from benchmarking.benches.model_benchmark import ModelBenchmark
from benchmarking.errors import BenchhouseError, UsageError


def load_module(path: Path) -> ModuleType:
    """The file as a module, its own folder first on the path, so that it can import what lies beside it.

    Raises UsageError that names the file and the line where importing it went wrong.
    """
    name = f"benchhouse_bench_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path}: not a Python file")
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickling look a class's module up by its name
    try:
        spec.loader.exec_module(module)
    except FileNotFoundError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    except Exception as error:
        raise UsageError(f"{where(path, error)}: {type(error).__name__}: {error}") from error
    return module


def classes(module: ModuleType) -> tuple[type[ModelBenchmark], ...]:
    """The benchmarks a file defines, in its order. Bases for others begin with "_" or have abstract methods left."""
    found = (value for value in vars(module).values() if inspect.isclass(value) and issubclass(value, ModelBenchmark))
    return tuple(
        dict.fromkeys(
            each
            for each in found
            if each.__module__ == module.__name__ and not each.__name__.startswith("_") and not inspect.isabstract(each)
        )
    )


def load_class(path: Path, name: str) -> type[ModelBenchmark]:
    """A benchmark by its file and class. Raises BenchhouseError when it is not there any more."""
    for each in classes(load_module(path)):
        if each.__name__ == name:
            return each
    raise BenchhouseError(f"{path} has no ModelBenchmark {name}")


def where(path: Path, error: BaseException) -> str:
    """The file and, as far as the error tells, the line in it."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return f"{path}, line {error.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return f"{path}, line {lines[-1]}" if lines else str(path)
