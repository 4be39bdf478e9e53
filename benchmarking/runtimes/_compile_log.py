"""What torch's compiler says of itself: what it compiled since the log was begun, how long that took, and where it
could not go on. One log at a time is kept in a process.

Source: the records that torch._dynamo keeps of each compilation (`get_compilation_metrics`), and its counters.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from benchmarking.records import Json

MAX_COMPILATIONS = 10_000
"""Records that are kept; torch's own limit of 64 is passed by a model that breaks into many graphs."""
MAX_REASONS = 5
"""Reasons told of graph breaks and recompilations, the first ones; more would only fill the record."""
MAX_REASON_CHARACTERS = 300


class CompileLog:
    """The compilations of this process."""

    @classmethod
    def begin(cls, cleanup: ExitStack) -> CompileLog:
        """A new log. Everything that was compiled before is forgotten, now and at `cleanup`.

        Where torch's limit of recompilations is reached it raises, instead of running on without compilation.
        """
        import torch
        from torch._dynamo import utils

        forget()
        utils.set_compilation_metrics_limit(MAX_COMPILATIONS)
        cleanup.enter_context(torch._dynamo.config.patch(fail_on_recompile_limit_hit=True))
        cleanup.callback(forget)
        return cls()

    def compiles(self) -> int:
        """Compilations so far, and work that compiled code puts off to its first runs (tuning, recording of graphs)."""
        return len(self._records())

    def seconds(self) -> float:
        """Seconds spent compiling so far."""
        return sum((record.duration_us or 0) / 1e6 for record in self._records())

    def graphs(self) -> int:
        """Graphs compiled so far, those of recompilations among them."""
        from torch._dynamo.utils import counters

        return int(counters["stats"]["unique_graphs"])

    def cuda_graph_skips(self) -> tuple[int, tuple[str, ...]]:
        """Graphs that were not made CUDA graphs, and why not."""
        from torch._dynamo.utils import counters

        reasons = [str(r.cudagraph_skip_reason) for r in self._records() if getattr(r, "cudagraph_skip_reason", None)]
        return int(counters["inductor"]["cudagraph_skips"]), tuple(dict.fromkeys(reasons))

    def verified(self) -> dict[str, Json]:
        """Graphs, breaks and recompilations with their first reasons, seconds, and what the cache on disk had."""
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
    """Forget what was compiled, and what is counted of it."""
    import torch
    from torch._dynamo import utils

    torch._dynamo.reset()
    utils.counters.clear()
    utils.clear_compilation_metrics()


def _is_recompile(record: Any) -> bool:
    """Whether the code had been compiled before: its number is frame/compilation, "1/2" the third one of frame 1."""
    _, _, compilation = str(record.compile_id or "").partition("/")
    return compilation.partition("_")[0] not in ("", "0")


def _first(reasons: list[str]) -> list[Json]:
    """The first ones, of each its first line: stack traces follow, in which somebody's folders are."""
    return [reason.strip().partition("\n")[0][:MAX_REASON_CHARACTERS] for reason in reasons[:MAX_REASONS]]
