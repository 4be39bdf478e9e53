"""Importing the code of transformers' models without what only training, compiling and several machines need.

The module of any model imports torch._dynamo (for decorators), torch.distributed.tensor, sympy, and where they are
installed scipy.optimize (for a loss) and torchao (for its file format): together more than torch itself, in every
launch. Here they are left out. What is called after all is imported then, so nothing is lost but one thing:
transformers takes torch for one without `torch.distributed`, as torch is built for some systems.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from types import ModuleType
from typing import Any

DYNAMO = "torch._dynamo"
MASKS = "torch._dynamo._trace_wrapped_higher_order_op"
CALLED_LATER: Mapping[str, Collection[str]] = {
    MASKS: ("TransformGetItemToIndex",),
    "scipy.optimize": ("linear_sum_assignment",),
    "torchao.prototype.safetensors.safetensors_support": ("flatten_tensor_state_dict", "unflatten_tensor_state_dict"),
}
"""Module -> what transformers takes from it while it is imported, and calls later if ever."""
OWN_MASKS = (b"_mask_function=", b"block_sequence_ids=")
"""In the code of a model that makes attention masks by functions of its own: its first call enters MASKS."""


@contextmanager
def lean_imports() -> Iterator[None]:
    """A context for importing a model's code, as the module's text says. It changes nothing in a process that has
    imported some model or torch._dynamo already."""
    if DYNAMO in sys.modules or "transformers.modeling_utils" in sys.modules:
        yield
        return
    import torch

    stubs = {name: _Stub(name) for name in CALLED_LATER if name not in sys.modules}
    dynamo = _dynamo_to_come()
    own = {name: getattr(torch.compiler, name) for name in _MARKS}
    _without_distributed()
    sys.modules.update(stubs)
    vars(torch)["_dynamo"] = dynamo
    vars(torch.compiler).update(_MARKS)
    try:
        yield
    finally:
        vars(torch.compiler).update(own)
        if vars(torch).get("_dynamo") is dynamo:
            del torch._dynamo
        for name, stub in stubs.items():
            if sys.modules.get(name) is stub:
                del sys.modules[name]
    if _makes_own_masks():
        _import_masks()


@contextmanager
def classes_looked_up_once() -> Iterator[None]:
    """A context for importing transformers.models, which reads its thousands of files for the names of classes: half a
    second. transformers did the same just before, for a list with "models." before each name."""
    import transformers
    from transformers.utils import import_utils

    folder = Path(transformers.__file__).parent / "models"
    define = import_utils.define_import_structure

    def known(path: Any, prefix: str | None = None) -> Any:
        if prefix is not None or Path(path) != folder / "__init__.py":
            return define(path, prefix)
        found = define(folder, prefix="models")
        own = {needed: _without_prefix(modules) for needed, modules in found.items()}
        return {needed: modules for needed, modules in own.items() if modules}

    vars(import_utils)["define_import_structure"] = known
    try:
        yield
    finally:
        vars(import_utils)["define_import_structure"] = define


def _without_prefix(modules: Mapping[str, Any]) -> dict[str, Any]:
    return {name.removeprefix("models."): names for name, names in modules.items() if name.startswith("models.")}


class _Stub(ModuleType):
    """A module in the place of one that is imported when something is called, or another name of it is used."""

    def __getattr__(self, name: str) -> Any:
        if name in CALLED_LATER[self.__name__] and DYNAMO not in sys.modules:
            return _called_later(self.__name__, name)
        if name.startswith("__"):
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)


def _called_later(module: str, name: str) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> Any:
        return getattr(importlib.import_module(module), name)(*arguments, **named)

    return call


def complete() -> None:
    """Before this process compiles a model: give the compiler the marks of functions that it has not got yet."""
    if not _ALLOWED_IN_GRAPH:
        return
    compiler: Any = importlib.import_module("torch.compiler")
    while _ALLOWED_IN_GRAPH:
        compiler.allow_in_graph(_ALLOWED_IN_GRAPH.pop())
    _import_masks()


_ALLOWED_IN_GRAPH: list[Any] = []
"""What was marked while torch._dynamo was left out."""


def _allow_in_graph(function: Any) -> Any:
    _ALLOWED_IN_GRAPH.append(function)
    return function


def _assume_constant_result(function: Any) -> Any:
    function._dynamo_marked_constant = True
    return function


def _dynamo_to_come() -> ModuleType:
    """torch._dynamo while a model's code is imported: its marks, and for anything else the real one."""

    def other(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(importlib.import_module(DYNAMO), name)

    module = ModuleType(DYNAMO)
    vars(module).update(_MARKS, __getattr__=other)
    return module


def _disabled_later(function: Any = None, *arguments: Any, **named: Any) -> Any:
    """torch.compiler.disable, which imports torch._dynamo, at the first call of what it decorates."""
    if function is None:
        return lambda decorated: _disabled_later(decorated, *arguments, **named)

    @wraps(function)
    def call(*given: Any, **further: Any) -> Any:
        compiler: Any = importlib.import_module("torch.compiler")
        return compiler.disable(function, *arguments, **named)(*given, **further)

    return call


_MARKS = {
    "allow_in_graph": _allow_in_graph,
    "assume_constant_result": _assume_constant_result,
    "disable": _disabled_later,
}
"""Decorators of `torch.compiler` and torch._dynamo that say something to the compiler, without importing it."""


def _without_distributed() -> None:
    """Make transformers remember that torch is one without `torch.distributed`; nothing of torch itself changes."""
    import torch
    from transformers.utils import import_utils

    found = import_utils.is_torch_distributed_available
    own = torch.distributed.is_available
    torch.distributed.is_available = lambda: False
    try:
        found.cache_clear()
        found()
    finally:
        torch.distributed.is_available = own


def _makes_own_masks() -> bool:
    files = [
        module.__file__
        for name, module in sys.modules.items()
        if name.startswith("transformers.models.") and ".modeling_" in name and module.__file__ is not None
    ]
    return any(mark in text for text in map(_read, files) for mark in OWN_MASKS)


def _read(path: str) -> bytes:
    return Path(path).read_bytes()


def _import_masks() -> None:
    """Import now what the first call would, as a part of the load."""
    import transformers.masking_utils

    vars(transformers.masking_utils)["TransformGetItemToIndex"] = importlib.import_module(MASKS).TransformGetItemToIndex
