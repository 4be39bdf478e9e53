"""Sessions whose modules torch.compile compiles in the first call, the folder of compiled code, and the compiler's log.

The modules that a family's operation calls directly are compiled in place: for most families the model, for an
encoder-decoder its encoder and the model, for a captioner its image tower and its text decoder. They are found by
observing one uncompiled call, so there is no list that could become outdated.

Each cell and point has its own folder of compiled code. The first launch empties it and compiles everything (cold),
later launches reuse it (warm).

The log holds the compilations since its start, their seconds, and graph breaks, from the records and counters of
torch._dynamo (`get_compilation_metrics`). A process has one log at a time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from importlib.metadata import version
from typing import Any, Literal

from benchmarking.builds.store import BuildKey, BuildStore, model_parts
from benchmarking.core.child_process import environment_variable
from benchmarking.core.contracts import MADE_BUILD, NOT_AS_REQUESTED, FamilyOperation
from benchmarking.core.errors import UnsupportedError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.lazy_modules import torch
from benchmarking.core.records import NOT_RUN, Cell, Json, Point, Readings
from benchmarking.core.untrusted.redaction import cut_to
from benchmarking.runtimes.support.torch.torch_session import Loaded, TorchOperation, TorchSession

KIND = "inductor"

FOLDERS = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton"}
"""Folder names in a build, by environment variable of torch's folder."""

LAUNCH = "BENCHHOUSE_LAUNCH"

MAX_COMPILATIONS = 10_000
"""Limit of torch's records. Its default of 64 is too low for a model with many graph breaks."""

MAX_REASONS = 5
"""Number of stored reasons for graph breaks and recompilations."""

MAX_REASON_CHARACTERS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileSettings:
    """The arguments of torch.compile, and the folder of compiled code."""

    mode: str
    dynamic: bool | None
    """None if torch decides when a shape changes."""
    uses_cuda_graphs: bool
    cache: CompileCache | None


class CompilingOperation(TorchOperation):
    """An operation that compiles when called."""

    def __init__(self, log: CompileLog, settings: CompileSettings | None, *arguments: Any) -> None:
        """`settings` is None if only a part is compiled (flex_attention); the other arguments are TorchOperation's."""
        super().__init__(*arguments)
        self.is_compiled = settings is not None
        self.is_replayed = settings is not None and settings.uses_cuda_graphs
        self.compiled_modules: tuple[str, ...] = ()
        self._log = log
        self._settings = settings

    def readings(self, output: Any) -> Readings:
        """Readings from an uncompiled call, since some use hooks, which compiled code does not call. Raises
        UnsupportedError if the previous call compiled nothing."""
        if self._log.graphs() == 0:
            raise UnsupportedError("torch.compile compiled nothing: the call ran uncompiled")
        with torch.compiler.set_stance("force_eager"):
            readings = super().readings(output)
        cache = None if self._settings is None else self._settings.cache
        return readings if cache is None else readings | Readings(missing=cache.missing_times())

    def verified(self) -> Mapping[str, Json]:
        facts: dict[str, Json] = {**super().verified(), **self._log.verified()}
        if self._settings is None:
            return facts
        facts["compiled_modules"] = list(self.compiled_modules)
        if self._settings.cache is not None:
            facts["compile_cache"] = self._settings.cache.state
            facts[MADE_BUILD] = f"{KIND}/{self._settings.cache.key.digest}"
        if not self._settings.uses_cuda_graphs:
            return facts
        skips, reasons = self._log.cuda_graph_skips()
        facts |= {"cuda_graph_skips": skips, "cuda_graph_skip_reasons": list(reasons)}
        if skips and skips >= self._log.graphs():  # the calls are not as requested
            why = f"no graph became a CUDA graph: {reasons[0] if reasons else 'torch gives no reason'}"
            facts[NOT_AS_REQUESTED] = "; ".join(filter(None, (str(facts.get(NOT_AS_REQUESTED, "")), why)))
        return facts


class CompilingSession(TorchSession):
    """A session on a model of which a part is compiled."""

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
        # The inputs are inference tensors like all results, since compiled code distinguishes them from others.
        with torch.inference_mode():
            operation = super().operation(point)
        assert isinstance(operation, CompilingOperation)
        names = {id(module): name for name, module in self.model.named_modules()}
        with torch.compiler.set_stance("force_eager"):
            called = called_modules(lambda: operation.run(lambda name: None))
        operation.reset()
        for module in called:
            if module._compiled_call_impl is None:  # compiled in place, once
                compile_in_place(module, mode=self._settings.mode, dynamic=self._settings.dynamic)
                compiled: Any = module._compiled_call_impl
                if self._settings.uses_cuda_graphs:
                    module._compiled_call_impl = as_own_step(compiled)
        operation.compiled_modules = tuple(names.get(id(m)) or type(m).__name__ for m in called)
        return operation

    def close(self) -> None:
        if self._settings.cache is not None and self._log.compiles():
            self._settings.cache.keep(self._log.graphs(), self._log.seconds())
        super().close()


def compile_in_place(module: Any, **arguments: Any) -> None:
    """`module.compile` that also works for torch's own modules (nn.Linear, nn.Sequential): torch traces those only
    inside other modules and would leave one that is called directly uncompiled."""
    from torch._dynamo import trace_rules

    with torch._dynamo.config.patch(wrap_top_frame=bool(trace_rules.check(module.forward))):
        module.compile(**arguments)


def called_modules(call: Callable[[], object]) -> tuple[Any, ...]:
    """The torch modules that a call calls outside any other module, in order."""
    from torch.nn.modules import module

    around: list[Any] = []
    outermost: dict[int, Any] = {}

    def before(called: Any, arguments: Any) -> None:
        if not around:
            outermost.setdefault(id(called), called)
        around.append(called)

    def after(called: Any, arguments: Any, output: Any) -> None:
        around.pop()

    with ExitStack() as hooks:
        hooks.callback(module.register_module_forward_pre_hook(before).remove)
        hooks.callback(module.register_module_forward_hook(after).remove)
        call()
    return tuple(outermost.values())


def as_own_step(call: Callable[..., Any]) -> Callable[..., Any]:
    """The call of a module with CUDA graphs as a step of its own, wrapped to return copies of its tensors.

    A graph that follows another one in a step is recorded for that place: without a step of its own, each token of a
    generation would get a graph. The copies are needed because the next replay overwrites the outputs, and families
    keep some of them (an encoding, the first logits).
    """
    from torch.utils import _pytree

    begin_step: Callable[[], None] = torch.compiler.cudagraph_mark_step_begin

    def call_and_copy(*arguments: Any, **named: Any) -> Any:
        begin_step()
        return _pytree.tree_map_only(torch.Tensor, torch.clone, call(*arguments, **named))

    return call_and_copy


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileCache:
    """The folder of compiled code of one process."""

    store: BuildStore
    key: BuildKey
    state: Literal["cold", "warm"]

    @classmethod
    def open(cls, cell: Cell, point: Point, cleanup: ExitStack) -> CompileCache:
        """The folder of a point, set in torch's environment until `cleanup`. It is empty in the first launch, and if
        there is no build from an earlier one. Raises StorageError if it cannot be created."""
        store, key = BuildStore(), cache_key(cell, point)
        is_warm = int(os.environ.get(LAUNCH, "0")) > 0 and store.find(key) is not None
        folder = store.folder(key) if is_warm else store.empty_folder(key)
        for variable, name in FOLDERS.items():
            cleanup.enter_context(environment_variable(variable, str(folder / name)))
        return cls(store=store, key=key, state="warm" if is_warm else "cold")

    def keep(self, graphs: int, compile_s: float) -> None:
        """Keep the folder for later launches, with the number of graphs and the time of the full compilation."""
        if self.state == "cold":
            self.store.keep(self.key, build_s=compile_s, facts={"graphs": graphs})

    def missing_times(self) -> dict[str, str]:
        """Why this launch has no compile time for the other state (cold or warm)."""
        if self.state == "cold":
            return {"compile_warm_s": f"{NOT_RUN}: needs a second launch"}
        return {"compile_cold_s": f"{NOT_RUN}: an earlier launch left its compiled code"}


def cache_key(cell: Cell, point: Point) -> BuildKey:
    """The inputs of compiled code, including the number of threads on a CPU."""
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
    @classmethod
    def begin(cls, cleanup: ExitStack) -> CompileLog:
        """Start a new log. All earlier compilations are dropped, now and at `cleanup`.

        At torch's recompilation limit, compilation raises an error instead of continuing uncompiled.
        """
        from torch._dynamo import utils

        reset_compiler()
        utils.set_compilation_metrics_limit(MAX_COMPILATIONS)
        cleanup.enter_context(torch._dynamo.config.patch(fail_on_recompile_limit_hit=True))
        cleanup.callback(reset_compiler)
        return cls()

    def compiles(self) -> int:
        """Compilations so far, including work that compiled code defers to its first runs (tuning, graph recording)."""
        return len(self._records())

    def seconds(self) -> float:
        """Seconds spent compiling so far."""
        return sum((record.duration_us or 0) / 1e6 for record in self._records())

    def graphs(self) -> int:
        """Graphs compiled so far, including recompilations."""
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
        # A record's id is frame/compilation: "1/2" is the third compilation of frame 1. What compiled code does in its
        # first runs (recording CUDA graphs, tuning) has a record with the same id.
        recompiles = [
            record
            for record in self._records()
            if not getattr(record, "is_runtime", False)
            and str(record.compile_id or "").partition("/")[2].partition("_")[0] not in ("", "0")
        ]
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


def reset_compiler() -> None:
    """Drop all compiled code and its counters."""
    from torch._dynamo import utils

    torch._dynamo.reset()
    utils.counters.clear()
    utils.clear_compilation_metrics()


def _first(reasons: list[str]) -> list[Json]:
    """The first line of the first reasons; stack traces with the user's paths follow it."""
    return [cut_to(reason.strip().partition("\n")[0], MAX_REASON_CHARACTERS) for reason in reasons[:MAX_REASONS]]
