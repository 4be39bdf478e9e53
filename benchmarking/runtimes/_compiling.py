"""Sessions whose code is compiled while it is called, and what they tell of it.

What is compiled is what a call calls: the modules that a family's operation reaches first, in place. For most that is
the model; for an encoder-decoder its encoder and the model, for a captioner its image tower and its text decoder. They
are found by watching one call without compilation, so that no list of them can be out of date.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from benchmarking.errors import UnsupportedError
from benchmarking.records import Json, Point, Readings
from benchmarking.runtimes import Mark
from benchmarking.runtimes._compile_cache import CompileCache
from benchmarking.runtimes._compile_log import CompileLog
from benchmarking.runtimes._torch_session import Loaded, TorchOperation, TorchSession
from benchmarking.workloads import FamilyOperation


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileSettings:
    """What torch.compile is given, and where it keeps what it makes."""

    mode: str
    dynamic: bool | None
    """None: torch decides when a shape changes."""
    uses_cuda_graphs: bool
    cache: CompileCache | None


class CompilingOperation(TorchOperation):
    """An operation that compiles when it is called."""

    def __init__(self, log: CompileLog, settings: CompileSettings | None, *arguments: Any) -> None:
        """`settings` are None where only a part compiles itself (flex_attention); the rest is TorchOperation's."""
        super().__init__(*arguments)
        self.is_compiled = settings is not None
        self.compiled_modules: tuple[str, ...] = ()
        self._log = log
        self._settings = settings
        self._begin_step = _begin_step() if settings is not None and settings.uses_cuda_graphs else None

    def run(self, mark: Mark) -> Any:
        if self._begin_step is not None:
            self._begin_step()
        return super().run(mark)

    def readings(self, output: Any) -> Readings:
        """As without compilation: hooks, which some of them are read with, do not reach into compiled code. Raises
        UnsupportedError when nothing was compiled in the call before."""
        import torch

        if self._log.graphs() == 0:
            raise UnsupportedError("torch.compile compiled nothing: the call ran as it does without it")
        with torch.compiler.set_stance("force_eager"):
            told = super().readings(output)
        cache = None if self._settings is None else self._settings.cache
        return told if cache is None else told | Readings(missing=cache.absent())

    def verified(self) -> Mapping[str, Json]:
        found: dict[str, Json] = {**super().verified(), **self._log.verified()}
        if self._settings is None:
            return found
        found["compiled_modules"] = list(self.compiled_modules)
        if self._settings.cache is not None:
            found["compile_cache"] = self._settings.cache.state
        return {**found, **self._cuda_graphs()} if self._settings.uses_cuda_graphs else found

    def _cuda_graphs(self) -> dict[str, Json]:
        """Raises UnsupportedError when not one graph became a CUDA graph, which the mode is about."""
        skips, reasons = self._log.cuda_graph_skips()
        if skips and skips >= self._log.graphs():
            why = reasons[0] if reasons else "torch does not say why"
            raise UnsupportedError(f"no graph could be a CUDA graph: {why}")
        return {"cuda_graph_skips": skips, "cuda_graph_skip_reasons": list(reasons)}


class CompilingSession(TorchSession):
    """A session on a model with a part that compiles itself."""

    def __init__(self, loaded: Loaded, log: CompileLog, settings: CompileSettings | None = None) -> None:
        super().__init__(loaded)
        self._log = log
        self._settings = settings

    def compiles(self) -> int:
        """Compilations so far in this process."""
        return self._log.compiles()

    def wrapped(self, inner: FamilyOperation, point: Point, preparation: Callable[[], Readings]) -> CompilingOperation:
        return CompilingOperation(self._log, self._settings, inner, point.label, preparation, self.attention)


class CompiledSession(CompilingSession):
    """A session on a model that torch.compile compiles."""

    _settings: CompileSettings

    def operation(self, point: Point) -> CompilingOperation:
        """The operation, the modules that it calls told to compile in the next call."""
        import torch

        # Inputs as inference tensors, which all that comes of them is: compiled code tells the two kinds apart.
        with torch.inference_mode():
            operation = super().operation(point)
        assert isinstance(operation, CompilingOperation)
        names = {id(module): name for name, module in self.model.named_modules()}
        with torch.compiler.set_stance("force_eager"):
            called = called_modules(lambda: operation.run(lambda name: None))
        operation.reset()
        for module in called:
            self._compile(module)
        operation.compiled_modules = tuple(names.get(id(m)) or type(m).__name__ for m in called)
        return operation

    def close(self) -> None:
        if self._settings.cache is not None and self._log.compiles():
            self._settings.cache.keep({"graphs": self._log.graphs(), "compile_s": self._log.seconds()})
        super().close()

    def _compile(self, module: Any) -> None:
        """Compile a module in place, once. Of CUDA graphs, whose outputs lie where the next replay writes, copies come
        back: families keep some (an encoding, the first logits) while they go on."""
        if module._compiled_call_impl is not None:
            return
        module.compile(mode=self._settings.mode, dynamic=self._settings.dynamic)
        compiled: Any = module._compiled_call_impl
        if self._settings.uses_cuda_graphs:
            module._compiled_call_impl = copying(compiled)


def _begin_step() -> Callable[[], None]:
    """Tells CUDA graphs that the outputs of the call before are done with."""
    import torch

    begin: Callable[[], None] = torch.compiler.cudagraph_mark_step_begin
    return begin


@dataclass(slots=True)
class _Outermost:
    """Hooks on every module: those that are called while no other one is."""

    depth: int = 0
    found: dict[int, Any] = field(default_factory=dict)

    def before(self, module: Any, arguments: Any) -> None:
        if self.depth == 0:
            self.found.setdefault(id(module), module)
        self.depth += 1

    def after(self, module: Any, arguments: Any, output: Any) -> None:
        self.depth -= 1


def called_modules(call: Callable[[], object]) -> tuple[Any, ...]:
    """The torch modules that a call calls itself, in order, those that only they call left out."""
    from torch.nn.modules import module

    outermost = _Outermost()
    with ExitStack() as hooks:
        hooks.callback(module.register_module_forward_pre_hook(outermost.before).remove)
        hooks.callback(module.register_module_forward_hook(outermost.after).remove)
        call()
    return tuple(outermost.found.values())


def copying(call: Callable[..., Any]) -> Callable[..., Any]:
    """The call, with copies of the tensors that it gives in place of these."""
    import torch
    from torch.utils import _pytree

    def copied(*arguments: Any, **named: Any) -> Any:
        return _pytree.tree_map_only(torch.Tensor, torch.clone, call(*arguments, **named))

    return copied
