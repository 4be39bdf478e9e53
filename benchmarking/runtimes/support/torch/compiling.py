"""Sessions whose modules torch.compile compiles in the first call, the folder of the compiled code, and the compiler's
log.

The modules that a family's operation calls directly are compiled in place: for most families the model, for an
encoder-decoder its encoder and the model, for a captioner its image tower and its text decoder. They are found by
watching one call without compilation, so there is no list that could be out of date.

Each cell and point has its own folder of compiled code. The first launch empties it and compiles everything (cold), the
later ones reuse it (warm).

The log has the compilations since it began, their seconds, and graph breaks, from the records and counters of
torch._dynamo (`get_compilation_metrics`). A process has one log at a time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any, Literal

from benchmarking.builds.store import BuildKey, BuildStore, model_parts
from benchmarking.core.child_process import environment_variable
from benchmarking.core.contracts import MADE_BUILD, NOT_AS_REQUESTED, FamilyOperation, Mark
from benchmarking.core.errors import UnsupportedError
from benchmarking.core.records import NOT_RUN, Cell, Json, Point, Readings
from benchmarking.runtimes.support.torch.session import Loaded, TorchOperation, TorchSession

KIND = "inductor"

FOLDERS = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton"}

"""Environment variable of torch's folder -> the folder's name in a build."""

LAUNCH = "BENCHHOUSE_LAUNCH"

MAX_COMPILATIONS = 10_000

"""Limit of torch's records; its default of 64 is too low for a model with many graph breaks."""

MAX_REASONS = 5

"""Stored reasons of graph breaks and recompilations, the first ones."""

MAX_REASON_CHARACTERS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileSettings:
    """The arguments of torch.compile, and the folder of the compiled code."""

    mode: str
    dynamic: bool | None
    """None: torch decides when a shape changes."""
    uses_cuda_graphs: bool
    cache: CompileCache | None


class CompilingOperation(TorchOperation):
    """An operation that compiles when it is called."""

    def __init__(self, log: CompileLog, settings: CompileSettings | None, *arguments: Any) -> None:
        """`settings` are None where only a part is compiled (flex_attention); the other arguments are
        TorchOperation's."""
        super().__init__(*arguments)
        self.is_compiled = settings is not None
        self.is_replayed = settings is not None and settings.uses_cuda_graphs
        self.compiled_modules: tuple[str, ...] = ()
        self._log = log
        self._settings = settings
        self._begin_step = _begin_step() if settings is not None and settings.uses_cuda_graphs else None

    def run(self, mark: Mark) -> Any:
        if self._begin_step is not None:
            self._begin_step()
        return super().run(mark)

    def readings(self, output: Any) -> Readings:
        """Read without compilation: some readings use hooks, which compiled code does not call. Raises UnsupportedError
        when the call before compiled nothing."""
        import torch

        if self._log.graphs() == 0:
            raise UnsupportedError("torch.compile compiled nothing: the call ran without compilation")
        with torch.compiler.set_stance("force_eager"):
            own = super().readings(output)
        cache = None if self._settings is None else self._settings.cache
        return own if cache is None else own | Readings(missing=cache.absent())

    def verified(self) -> Mapping[str, Json]:
        found: dict[str, Json] = {**super().verified(), **self._log.verified()}
        if self._settings is None:
            return found
        found["compiled_modules"] = list(self.compiled_modules)
        if self._settings.cache is not None:
            found["compile_cache"] = self._settings.cache.state
            found[MADE_BUILD] = f"{KIND}/{self._settings.cache.key.digest}"
        return {**found, **self._cuda_graphs(found)} if self._settings.uses_cuda_graphs else found

    def _cuda_graphs(self, found: Mapping[str, Json]) -> dict[str, Json]:
        """The graphs that did not become CUDA graphs; where none did, the calls are not what the mode is for."""
        skips, reasons = self._log.cuda_graph_skips()
        facts: dict[str, Json] = {"cuda_graph_skips": skips, "cuda_graph_skip_reasons": list(reasons)}
        if skips and skips >= self._log.graphs():
            why = f"no graph could be a CUDA graph: {reasons[0] if reasons else 'torch gives no reason'}"
            facts[NOT_AS_REQUESTED] = "; ".join(filter(None, (str(found.get(NOT_AS_REQUESTED, "")), why)))
        return facts


class CompilingSession(TorchSession):
    """A session on a model with a part that is compiled."""

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
        """The operation, whose modules are compiled in the next call."""
        import torch

        # The inputs are inference tensors, as all results are: compiled code distinguishes them from others.
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
            self._settings.cache.keep(self._log.graphs(), self._log.seconds())
        super().close()

    def _compile(self, module: Any) -> None:
        """Compile a module in place, once. With CUDA graphs, whose next replay overwrites the outputs, it returns
        copies: families keep some outputs (an encoding, the first logits)."""
        if module._compiled_call_impl is not None:
            return
        compile_in_place(module, mode=self._settings.mode, dynamic=self._settings.dynamic)
        compiled: Any = module._compiled_call_impl
        if self._settings.uses_cuda_graphs:
            module._compiled_call_impl = copying(compiled)


def compile_in_place(module: Any, **arguments: Any) -> None:
    """`module.compile`, also of torch's own modules (nn.Linear, nn.Sequential): torch traces those inside of others
    only, and would leave one that is called itself without compilation."""
    import torch
    from torch._dynamo import trace_rules

    with torch._dynamo.config.patch(wrap_top_frame=bool(trace_rules.check(module.forward))):
        module.compile(**arguments)


def _begin_step() -> Callable[[], None]:
    """The function that marks the outputs of the previous call as no longer needed."""
    import torch

    begin: Callable[[], None] = torch.compiler.cudagraph_mark_step_begin
    return begin


@dataclass(slots=True)
class _Outermost:
    """Hooks on every module that record those called outside any other."""

    depth: int = 0
    found: dict[int, Any] = field(default_factory=dict)

    def before(self, module: Any, arguments: Any) -> None:
        if self.depth == 0:
            self.found.setdefault(id(module), module)
        self.depth += 1

    def after(self, module: Any, arguments: Any, output: Any) -> None:
        self.depth -= 1


def called_modules(call: Callable[[], object]) -> tuple[Any, ...]:
    """The torch modules that a call calls directly, in order."""
    from torch.nn.modules import module

    outermost = _Outermost()
    with ExitStack() as hooks:
        hooks.callback(module.register_module_forward_pre_hook(outermost.before).remove)
        hooks.callback(module.register_module_forward_hook(outermost.after).remove)
        call()
    return tuple(outermost.found.values())


def copying(call: Callable[..., Any]) -> Callable[..., Any]:
    """The call, which then returns copies of its tensors."""
    import torch
    from torch.utils import _pytree

    def copied(*arguments: Any, **named: Any) -> Any:
        return _pytree.tree_map_only(torch.Tensor, torch.clone, call(*arguments, **named))

    return copied


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileCache:
    """The folder of compiled code of one process."""

    store: BuildStore
    key: BuildKey
    state: Literal["cold", "warm"]

    @classmethod
    def open(cls, cell: Cell, point: Point, cleanup: ExitStack) -> CompileCache:
        """The folder of a point, set in torch's environment until `cleanup`: empty in the first launch, or without a
        build of an earlier one. Raises StorageError when it cannot be created."""
        store, key = BuildStore(), cache_key(cell, point)
        is_warm = int(os.environ.get(LAUNCH, "0")) > 0 and store.find(key) is not None
        folder = store.folder(key) if is_warm else store.emptied(key)
        for variable, name in FOLDERS.items():
            cleanup.enter_context(environment_variable(variable, str(folder / name)))
        return cls(store=store, key=key, state="warm" if is_warm else "cold")

    def keep(self, graphs: int, compile_s: float) -> None:
        """Keep the folder for later launches, with what the launch took that compiled everything."""
        if self.state == "cold":
            self.store.keep(self.key, build_s=compile_s, facts={"graphs": graphs})

    def absent(self) -> dict[str, str]:
        """The reason why this launch has no compile time of the other state."""
        if self.state == "cold":
            return {"compile_warm_s": f"{NOT_RUN}: second launch"}
        return {"compile_cold_s": f"{NOT_RUN}: an earlier launch left its compiled code"}


def cache_key(cell: Cell, point: Point) -> BuildKey:
    """What compiled code depends on, on a CPU also the number of threads."""
    parts: dict[str, Json] = {
        **model_parts(cell.workload),
        "point": point.label,
        "device": cell.device.selector,
        "device_name": cell.device.name,
        "runtime": cell.runtime,
        "mode": dict(cell.runtime_mode),
        "precision": cell.precision,
        "num_threads": cell.num_threads,
        "versions": {name: version(name) for name in ("torch", "transformers")},
    }
    return BuildKey(kind=KIND, parts=parts)


class CompileLog:
    """The compilations of this process."""

    @classmethod
    def begin(cls, cleanup: ExitStack) -> CompileLog:
        """A new log. All earlier compilations are dropped, now and at `cleanup`.

        At torch's limit of recompilations it raises, instead of continuing without compilation.
        """
        import torch
        from torch._dynamo import utils

        forget()
        utils.set_compilation_metrics_limit(MAX_COMPILATIONS)
        cleanup.enter_context(torch._dynamo.config.patch(fail_on_recompile_limit_hit=True))
        cleanup.callback(forget)
        return cls()

    def compiles(self) -> int:
        """Compilations so far, including work that compiled code defers to its first runs (tuning, graph recording)."""
        return len(self._records())

    def seconds(self) -> float:
        """Seconds spent compiling so far."""
        return sum((record.duration_us or 0) / 1e6 for record in self._records())

    def graphs(self) -> int:
        """Graphs compiled so far, recompilations included."""
        from torch._dynamo.utils import counters

        return int(counters["stats"]["unique_graphs"])

    def cuda_graph_skips(self) -> tuple[int, tuple[str, ...]]:
        """Number of graphs that did not become CUDA graphs, and the reasons."""
        from torch._dynamo.utils import counters

        reasons = [str(r.cudagraph_skip_reason) for r in self._records() if getattr(r, "cudagraph_skip_reason", None)]
        return int(counters["inductor"]["cudagraph_skips"]), tuple(dict.fromkeys(reasons))

    def verified(self) -> dict[str, Json]:
        """Graphs, breaks and recompilations with their first reasons, seconds, and hits of the cache on disk."""
        from torch._dynamo.utils import counters

        breaks = counters["graph_break"]
        recompiles = [record for record in self._records() if _is_recompile(record)]
        return {
            "graph_count": self.graphs(),
            "graph_break_count": sum(breaks.values()),
            "graph_break_reasons": _first(list(breaks)),
            "recompile_count": len(recompiles),
            "recompile_reasons": _first([str(getattr(record, "recompile_reason", None)) for record in recompiles]),
            "compile_s": self.seconds(),
            "compile_cache_hits": counters["inductor"]["fxgraph_cache_hit"],
            "compile_cache_misses": counters["inductor"]["fxgraph_cache_miss"],
        }

    def _records(self) -> list[Any]:
        from torch._dynamo.utils import get_compilation_metrics

        return list(get_compilation_metrics())


def forget() -> None:
    """Drop all compiled code and its counters."""
    import torch
    from torch._dynamo import utils

    torch._dynamo.reset()
    utils.counters.clear()
    utils.clear_compilation_metrics()


def _is_recompile(record: Any) -> bool:
    """Whether the code was compiled before: its id is frame/compilation, "1/2" the third compilation of frame 1."""
    _, _, compilation = str(record.compile_id or "").partition("/")
    return compilation.partition("_")[0] not in ("", "0")


def _first(reasons: list[str]) -> list[Json]:
    """The first line of the first reasons: stack traces with the user's paths follow it."""
    return [reason.strip().partition("\n")[0][:MAX_REASON_CHARACTERS] for reason in reasons[:MAX_REASONS]]
