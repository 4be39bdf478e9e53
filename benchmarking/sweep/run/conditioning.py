"""Finds, in a process of its own, whether a model is ill-conditioned: the measuring process need not have torch, and
its memory is measured."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

from benchmarking.builds.store import BuildKey, BuildStore
from benchmarking.core.child_process import ChildError, run_module_json
from benchmarking.core.records import Json, Point, Workload, dumps, from_json, to_json

MODULE = "benchmarking.sweep.run.conditioning"
LIMIT_S = 300.0
KIND = "conditioning"
ERROR = "float64_error"


def float64_error_of(workload: Workload, point: Point, reference: str) -> float | None:
    """The relative L2 difference between the float32 outputs, stored as the reference with this digest, and the float64
    outputs of the model. It is computed once and kept in the build cache; None if that fails."""

    def make(folder: Path) -> Mapping[str, Json]:
        request = json.dumps({"workload": to_json(workload), "point": to_json(point)})
        return {ERROR: run_module_json(MODULE, input_text=request, limit_s=LIMIT_S)}

    try:
        build, _ = BuildStore().get(BuildKey(kind=KIND, parts={"reference": reference}), make)
    except ChildError:
        return None
    error = build.facts.get(ERROR)
    return float(error) if isinstance(error, int | float) else None


def main() -> int:
    """Answer the request on stdin."""
    from benchmarking.graphs.export.conditioning import float64_error
    from benchmarking.runtimes.support.torch.model_loading import load_model
    from benchmarking.workloads.support.families import plugin_of

    request = json.load(sys.stdin)
    workload: Workload = from_json(Workload, request["workload"], "workload")
    point: Point = from_json(Point, request["point"], "point")
    plugin = plugin_of(workload)
    model, _ = load_model(workload, "float32", plugin.default_attention(workload.config))
    error = float64_error(model, workload, point, plugin.inputs(workload, point, workload.seed))
    print(dumps(error))
    return 0


if __name__ == "__main__":
    sys.exit(main())
