"""OpenVINO's model cache as a build: what was compiled for a device once, so that a launch only loads it.

The build "openvino-compiled" is the folder that OpenVINO is given as CACHE_DIR. Making it is the cold compilation, on
an empty folder; the launches' compilations are warm ones. Whether they were is read back (LOADED_FROM_CACHE).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarking.builds.store import Build, BuildKey, BuildStore
from benchmarking.devices._openvino_library import import_openvino
from benchmarking.records import Cell, Json, Point, Rebuild
from benchmarking.runtimes._openvino_build import build_key, find_build
from benchmarking.runtimes._openvino_compile import AUTO, check_capabilities, device_name, is_fixed, properties
from benchmarking.runtimes._openvino_load import compile_for, read
from benchmarking.runtimes._openvino_words import plain

KIND = "openvino-compiled"
COLD = "compile_cold_s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cache:
    """What was compiled before."""

    folder: Path
    cold_s: float
    """Seconds that it took then."""


def cache_key(cell: Cell, core: Any, point: Point) -> BuildKey:
    """What is compiled for a point depends on: the build, the device, its driver, what it is compiled with, and, where
    shapes are fixed, the point."""
    name = device_name(cell.device)
    parts: dict[str, Json] = {
        "model_id": cell.workload.model_id,
        "build": build_key(cell, point).digest,
        "device": name,
        "device_name": str(plain(core.get_property(name, "FULL_DEVICE_NAME"))),
        "driver": cell.device.driver,
        "properties": dict(properties(cell, point, has_states=True)),
        "point": point.label if is_fixed(cell) else None,
        "versions": {"openvino": version("openvino")},
    }
    return BuildKey(kind=KIND, parts=parts)


def find_cache(cell: Cell, core: Any, point: Point) -> Cache | None:
    """The point's cache; None where there is none, as for AUTO, which looks anew at what devices there are."""
    if device_name(cell.device) == AUTO:
        return None
    store = BuildStore()
    key = cache_key(cell, core, point)
    build = store.find(key)
    return None if build is None else Cache(folder=store.folder(key), cold_s=_cold_s(build))


def ensure_caches(cell: Cell, points: Sequence[Point], store: BuildStore, rebuild: Rebuild) -> dict[str, Json]:
    """Compile for every point what is not in the store yet: the seconds of the cold compilations together."""
    if device_name(cell.device) == AUTO:
        return {}
    core = import_openvino().Core()
    check_capabilities(core, device_name(cell.device), cell.precision)
    by_digest = {(key := cache_key(cell, core, point)).digest: (key, point) for point in points}
    builds = [_ensured(cell, core, key, point, store, rebuild) for key, point in by_digest.values()]
    return {COLD: sum(map(_cold_s, builds)), "compiled": [build.digest for build in builds]}


def _ensured(cell: Cell, core: Any, key: BuildKey, point: Point, store: BuildStore, rebuild: Rebuild) -> Build:
    def make(folder: Path) -> Mapping[str, Json]:
        compiled = compile_for(cell, core, read(core, find_build(cell, point, store)), point, folder)
        return {COLD: sum(each.compile_s for each in compiled.values())}

    return store.get(key, make, rebuild)[0]


def _cold_s(build: Build) -> float:
    return float(str(build.facts[COLD]))
