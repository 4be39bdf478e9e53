"""The lists of devices, runtimes and models that `--list-devices`, `--list-runtimes` and `--list-models` print."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from benchmarking.builds.inventory import CachedBuild, read_contents
from benchmarking.builds.store import BuildStore
from benchmarking.core import plugins
from benchmarking.core.errors import EXIT_OK
from benchmarking.core.plugins import distributions_of, kinds, names_with, versions_of
from benchmarking.core.records import Device, Json, to_json
from benchmarking.core.tables import NOTHING, Table, table_text
from benchmarking.core.terminal import PLAIN, Page, stdout_page
from benchmarking.core.text import size_text, wrapped
from benchmarking.workloads.support import families
from benchmarking.workloads.support.families import family_of
from benchmarking.workloads.support.hub import cached_models, hub_cache_dir
from benchmarking.workloads.support.resolve import catalog_workload


def show(flag: str, *, as_json: bool) -> int:
    """Print the list of a flag: the devices found, or the reason for none; the runtimes installed, or what is missing;
    or the models in the catalog, in the hub's cache, and exported. Returns the exit code."""
    if flag == "list_devices":
        from benchmarking.devices.support.select import probe_all

        found = probe_all()
        listed: Any = devices_json(found) if as_json else devices_text(found, stdout_page())
    elif flag == "list_runtimes":
        listed = runtimes_json() if as_json else runtimes_text(stdout_page())
    else:
        listed = models_json() if as_json else models_text(stdout_page())
    print(json.dumps(listed, indent=1) if as_json else listed)
    return EXIT_OK


RUNTIME_HEADINGS = ("runtime", "versions")
ABSENT_HEADINGS = ("not found", "why")


def runtimes_text(page: Page = PLAIN) -> str:
    """A table of the usable runtimes, then what is missing for each of the others."""
    runtimes = runtimes_json()
    packages = [(one["name"], one["versions"].items()) for one in runtimes if one["found"]]
    found = tuple((name, ", ".join(f"{package} {version}" for package, version in of)) for name, of in packages)
    absent = tuple((one["name"], one["why_not"]) for one in runtimes if not one["found"])
    tables = [Table(headings=RUNTIME_HEADINGS, rows=found)]
    tables += [Table(headings=ABSENT_HEADINGS, rows=absent)] if absent else []
    return "\n\n".join(table_text(table, page) for table in tables)


def runtimes_json() -> list[dict[str, Any]]:
    """One object per runtime that runs models: name, found, why_not (or null), versions of the packages that it runs
    on."""
    rows: list[dict[str, Any]] = []
    for name in plugins.names(plugins.RUNTIMES):
        if (runtime := plugins.runtime(name)).runs_models:
            others = chain(*(distributions_of(package.replace("-", "_")) for package in runtime.packages))
            versions = versions_of(dict.fromkeys((*runtime.packages, *others)))
            why_not = runtime.unusable()
            rows.append({"name": name, "found": why_not is None, "why_not": why_not, "versions": versions})
    return rows


DEVICE_HEADINGS = ("device", "name", "memory", "precisions", "driver")
BYTES_PER_GB = 1_000_000_000
Found = Mapping[str, tuple[Device, ...]]


def devices_text(found: Found, page: Page = PLAIN) -> str:
    """A table of the devices found, then the reason for each kind that was not, and what kinds can only be named."""
    devices = _hardware(found)
    rows = []
    for device in (device for device in devices if device.found):
        memory = NOTHING if device.memory_bytes is None else f"{device.memory_bytes / BYTES_PER_GB:.1f} GB"
        name = f"{device.name} (emulated, never ranked)" if device.simulated else str(device.name)
        precisions = " ".join(device.precisions) or NOTHING
        rows.append((device.selector, name, memory, precisions, device.driver or NOTHING))
    absent = tuple((device.type, str(device.why_not)) for device in devices if not device.found)
    tables = [Table(headings=DEVICE_HEADINGS, rows=tuple(rows), numbers=(2,))]
    tables += [Table(headings=ABSENT_HEADINGS, rows=absent)] if absent else []
    named = [f"{kind.name}: {kind.about}" for kind in kinds() if kind.about is not None]
    return "\n\n".join(
        [*(table_text(table, page) for table in tables), *(wrapped(one, page.text_width) for one in named)]
    )


def devices_json(found: Found) -> list[Json]:
    """The same as records."""
    return [to_json(device) for device in _hardware(found)]


def _hardware(found: Found) -> list[Device]:
    hardware = names_with(lambda kind: kind.is_hardware)
    return [device for devices in found.values() for device in devices if device.type in hardware]


NOT_MODELS = ("reference", "flops")
"""Kinds of builds without a model."""
CACHED_HEADINGS = ("model", "on disk", "safetensors", "commit")
EXPORTED_HEADINGS = ("model", "task", "format", "precision", "size", "digest")
SHORT = 12
"""Digits shown of a commit or digest."""


def models_json() -> dict[str, Json]:
    """`catalog` (as the catalog's own listing gives it), `cached` and `exported`: a list of objects each."""
    return {
        "catalog": list(catalog_json()),
        "cached": [
            {
                "name": model.model_id,
                "size_bytes": model.size_bytes,
                "weights_bytes": model.weights_bytes,
                "revisions": list(model.revisions),
                "folder": str(model.folder),
            }
            for model in cached_models(hub_cache_dir())
        ],
        "exported": [
            {
                "name": exported.model_id,
                "task": exported.build.parts.get("task"),
                "format": exported.build.kind,
                "precision": exported.precision,
                "size_bytes": exported.size_bytes,
                "digest": exported.build.digest,
                "made_at": exported.build.made_at,
                "folder": str(exported.folder),
            }
            for exported in _exported()
        ],
    }


def models_text(page: Page = PLAIN) -> str:
    """The same as tables."""
    cached, exported = [], []
    for model in cached_models(hub_cache_dir()):
        weights = size_text(model.weights_bytes) if model.weights_bytes else "none"
        cached.append((model.model_id, size_text(model.size_bytes), weights, model.revisions[0][:SHORT]))
    for stored in _exported():
        build, size = stored.build, size_text(stored.size_bytes)
        what = (stored.model_id or "-", str(build.parts.get("task") or "-"), build.kind, stored.precision or "-")
        exported.append((*what, size, build.digest[:SHORT]))
    return "\n".join(
        [
            catalog_text(page),
            "",
            f"Cached from the hub in {hub_cache_dir()}:",
            _section(CACHED_HEADINGS, cached, (1, 2), page),
            "",
            f"Exported to {BuildStore().root}:",
            _section(EXPORTED_HEADINGS, exported, (4,), page),
        ]
    )


def _section(headings: tuple[str, ...], rows: Sequence[tuple[str, ...]], numbers: tuple[int, ...], page: Page) -> str:
    return table_text(Table(headings=headings, rows=tuple(rows), numbers=numbers), page) if rows else "none"


def _exported() -> list[CachedBuild]:
    """The builds that contain models, sorted by model."""
    builds = [cached for cached in read_contents(BuildStore().root).builds if cached.build.kind not in NOT_MODELS]
    return sorted(builds, key=lambda cached: (cached.model_id or "", cached.build.kind, cached.precision or ""))


CATALOG_HEADINGS = ("model", "family", "task", "parameters", "float32", "max sequence", "further axes")
FLOAT32_BYTES = 4


def catalog_json() -> list[dict[str, Any]]:
    """One object per model: name, aliases, family, task, model_class, parameter_count, float32_bytes (of the
    parameters), max_sequence_length (or null), and its axes besides the batch size."""
    rows: list[dict[str, Any]] = []
    for entry in families.catalog_entries():
        plugin = family_of(entry.config, entry.name)
        rows.append(
            {
                "name": entry.name,
                "aliases": list(entry.aliases),
                "family": plugin.name,
                "task": plugin.tasks_of(entry.config)[0],
                "model_class": entry.model_class,
                "parameter_count": entry.parameter_count,
                "float32_bytes": entry.parameter_count * FLOAT32_BYTES,
                "max_sequence_length": plugin.max_sequence_length(entry.config),
                "axes": list(plugin.axes(catalog_workload(entry))),
            }
        )
    return rows


def catalog_text(page: Page = PLAIN) -> str:
    """The catalog as a table, and what else `--model-id` accepts."""
    rows = []
    for row in catalog_json():
        limit, axes = row["max_sequence_length"], row["axes"]
        longest = "-" if "sequence_length" not in axes else "none" if limit is None else str(limit)
        parameters, size = f"{row['parameter_count'] / 1e6:.1f} M", size_text(row["float32_bytes"])
        further = ", ".join(axes).replace("_", " ")
        rows.append((row["name"], row["family"], row["task"], parameters, size, longest, further))
    table = Table(headings=CATALOG_HEADINGS, rows=tuple(rows), names=(0,), numbers=(3, 4, 5))
    also = "MODEL may also be a folder with config.json and safetensors weights, or a name on the Hugging Face hub."
    return "\n".join([table_text(table, page), "", also])
