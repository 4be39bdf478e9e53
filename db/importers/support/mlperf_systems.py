"""Models, systems and accelerators in MLPerf inference submissions, and the place of a file in a submission."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarking.core.records import Family, Precision
from db.importers.support.files import ForeignFile, read_file
from db.importers.support.names import precision_of
from db.importers.support.reading import Fields

MODELS: dict[str, tuple[Family | None, str]] = {
    "bert": ("encoder-only", "question-answering"),
    "gptj": ("decoder-only", "text-generation"),
    "llama": ("decoder-only", "text-generation"),
    "mixtral": ("mixture-of-experts", "text-generation"),
    "deepseek": ("mixture-of-experts", "text-generation"),
    "gpt-oss": ("mixture-of-experts", "text-generation"),
    "qwen3-vl": ("multimodal", "image-text-to-text"),
    "whisper": ("speech", "automatic-speech-recognition"),
    "rnnt": ("speech", "automatic-speech-recognition"),
    "stable-diffusion": ("diffusion", "text-to-image"),
    "resnet": ("vision", "image-classification"),
    "mobilenet": ("vision", "image-classification"),
    "retinanet": ("vision", "object-detection"),
    "ssd": ("vision", "object-detection"),
    "3d-unet": ("vision", "image-segmentation"),
}
"""Prefix of a benchmark's name -> family and task."""
ACCELERATORS = {
    "cuda": ("nvidia", "geforce", "rtx", "quadro", "tesla"),
    "rocm": ("amd instinct", "radeon", "instinct mi"),
    "tpu": ("tpu",),
    "gaudi": ("gaudi",),
    "qnn": ("qualcomm", "cloud ai"),
}
"""Device type -> words in the names of such devices."""
COUNT = re.compile(r"\s*\(x(\d{1,5})\)\s*$")
CAPACITY = re.compile(r"\s*([0-9.]+)\s*(GB|GiB|TB|TiB|MB|MiB)\b.*")
BYTES = {"MB": 1e6, "GB": 1e9, "TB": 1e12, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
SOFTWARE = re.compile(r"([A-Za-z][\w .-]*?)[ =:]v?(\d[\w.+-]*)")
AUDITS = "compliance"
MEASUREMENT = {"weight_data_types", "input_data_types"}
TOKENS_SINCE = {"llama2": 4.0, "mixtral": 4.1, "gptj": 4.1, "llama3": 5.0, "deepseek": 5.1, "gpt-oss": 6.0}
"""Prefix of a model -> round since which its throughput is in tokens, although tables of some rounds state samples or
queries."""
DIVISIONS = ("closed", "open", "network")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The place of a file in a submission; all None outside of a submission."""

    division: str | None = None
    submitter: str | None = None
    system: str | None = None
    model: str | None = None
    scenario: str | None = None
    root: Path | None = None
    """The folder that contains the divisions."""
    inside: str = ""
    """The path of the file's folder from the root: identical logs of two models, or of two runs, are two results."""
    is_audit: bool = False
    """Whether it is in the folder of the compliance tests."""

    def system_file(self, platform: str | None = None) -> Path | None:
        """The path of the system's description; None without one."""
        name = platform or self.system
        if self.root is None or self.division is None or self.submitter is None or name is None or "/" in name:
            return None
        path = self.root / self.division / self.submitter / "systems" / f"{name}.json"
        return path if path.is_file() else None


def place_of(path: Path) -> Place:
    """The place, from the folders DIVISION/SUBMITTER/results/SYSTEM/MODEL/SCENARIO/..., or compliance instead of
    results."""
    parts = path.parts
    for at, part in enumerate(parts):
        if part in DIVISIONS and len(parts) > at + 5 and parts[at + 2] in ("results", AUDITS):
            submitter, kind, system, model, scenario = parts[at + 1 : at + 6]
            return Place(
                division=part,
                submitter=submitter,
                system=system,
                model=model,
                scenario=scenario if scenario != path.name else None,
                root=Path(*parts[:at]) if at else Path(),
                inside="/".join(parts[at:-1]),
                is_audit=kind == AUDITS,
            )
    return Place()


def measurement_fields(file: ForeignFile, place: Place) -> Fields:
    """The description of a test's measurement, in its own folders or under measurements/; empty without one."""
    if place.root is None or place.model is None or place.scenario is None:
        return Fields(file, {}, "measurements")
    own = place.root / str(place.division) / str(place.submitter)
    inside = (str(place.system), place.model, place.scenario)
    folders = [own.joinpath(kind, *inside) for kind in ("results", "measurements")]
    paths = [path for folder in folders for path in sorted(folder.glob("*.json"))]
    found = (data for path in paths if is_measurement(data := read_file(path).json))
    return Fields(file, next(found, {}), "measurements", numbers_are_text=True)


def system_fields(file: ForeignFile, path: Path | None) -> Fields:
    """The description of a system; empty without one."""
    if path is None:
        return Fields(file, {}, "system")
    data = read_file(path).json
    if not isinstance(data, dict):
        file.refuse(f"{path}: not one JSON object")
    return Fields(file, data, path.name, numbers_are_text=True)


def is_system(data: Any) -> bool:
    """Whether the data is a system's description."""
    return isinstance(data, dict) and {"system_name", "accelerator_model_name", "host_processor_model_name"} <= set(
        data
    )


def is_measurement(data: Any) -> bool:
    """Whether the data describes how a test was measured."""
    return isinstance(data, dict) and data.keys() >= MEASUREMENT


def about_model(name: str) -> tuple[Family | None, str]:
    """Family and task of a benchmark's model."""
    found = (about for start, about in MODELS.items() if name.lower().startswith(start))
    return next(found, (None, "benchmark"))


def counts_tokens(model: str, number: float) -> bool:
    """Whether the throughput of a model is in tokens in that round."""
    return any(model.lower().startswith(start) and number >= since for start, since in TOKENS_SINCE.items())


def precision_words(words: str | None) -> tuple[Precision, str | None]:
    """The precision of weight_data_types, and the original words if we have no name for it."""
    precision = precision_of(words)
    return precision, words if precision == "other" else None


def hardware(described: Mapping[str, str | None]) -> dict[str, Any]:
    """Fields of the run about the machine, from a description's fields."""
    accelerator = COUNT.sub("", described.get("accelerator_model_name") or "").strip()
    has_accelerator = accelerator.lower() not in ("", "n/a", "none", "-")
    cpu = (described.get("host_processor_model_name") or "").strip() or None
    nodes = _count(described.get("number_of_nodes")) or 1
    counted = COUNT.search(described.get("accelerator_model_name") or "")
    per_node = _count(described.get("accelerators_per_node")) or 1
    total = _count(described.get("total_accelerators")) or (int(counted[1]) if counted else None) or per_node * nodes
    sockets = _count(described.get("host_processors_per_node")) or 1
    words = (accelerator or "").lower()
    kind = next((one for one, known in ACCELERATORS.items() if any(word in words for word in known)), "accelerator")
    return {
        "device_type": kind if has_accelerator else "cpu" if cpu else "unknown",
        "device_name": accelerator if has_accelerator else cpu,
        "device_count": total if has_accelerator else sockets * nodes,
        "device_memory_bytes": _bytes(described.get("accelerator_memory_capacity")) if has_accelerator else None,
        "cpu_model": cpu,
        "cpu_cores": (_count(described.get("host_processor_core_count")) or 0) * sockets or None,
        "memory_bytes": _bytes(described.get("host_memory_capacity")),
    }


def software(framework: str | None) -> tuple[str, dict[str, str]]:
    """The runtime (the first name) and all versions in text such as "PyTorch 2.9.1, ROCm 7.0.0"."""
    text = (framework or "").strip()
    first = re.split(r"[,\s=:]", text, maxsplit=1)[0].lower()
    versions = {
        found[1].strip().lower(): found[2] for part in text.split(",") if (found := SOFTWARE.match(part.strip()))
    }
    return first or "unknown", versions


def _count(text: str | None) -> int | None:
    word = (text or "").strip().removesuffix(".0")
    return int(word) if re.fullmatch(r"[1-9][0-9]{0,8}", word) else None


def _bytes(text: str | None) -> int | None:
    found = CAPACITY.fullmatch(text or "")
    try:
        return round(float(found[1]) * BYTES[found[2]]) if found else None
    except ValueError:
        return None
