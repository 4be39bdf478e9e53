"""Layers of a model replaced by those of a kernel repository, with Hugging Face's package `kernels`.

Loading a kernel runs its repository's code. Two sources are taken: a repository that was named (a folder, or one of the
hub with its version), and the kernels that transformers itself maps its layers to. Of the hub the package loads what
its trusted organisations published and nothing else; no permission beyond that is ever given here.

A layer of a repository takes the place of the model's modules whose class is marked with its name (as transformers
marks its own for versions of the package that it knows) or is called exactly so: `GELUActivation`, `T5LayerNorm`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarking.core.errors import BenchhouseError, UnsupportedError, first_line
from benchmarking.core.records import Json

HUB = "hub"
"""The source that is transformers' own mapping."""
ON_HUB = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+)@(?P<version>\d+)")
"""A repository of the hub, with the version that is meant: "kernels-community/activation@1"."""
LOADING_ERRORS = (AssertionError, AttributeError, ImportError, OSError, RuntimeError, TypeError, ValueError)
"""What the package raises for a repository that is not there, not trusted, not for this device, or not a kernel."""
MAX_NAMED = 8
"""Classes of layers named in a reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a layer comes from."""

    repo: str
    """Folder or hub name."""
    version: int | str | None
    """The repository's number; on the hub also a commit."""
    layer: Any
    """The package's reference to it."""


def kernelize(model: Any, source: str, device_type: str) -> dict[str, Json]:
    """Replace what can be replaced in a model, in place; `kernels_replaced` says which layers, by name.

    Raises BenchhouseError for a source that cannot be loaded, UnsupportedError when it has nothing for this model.
    """
    from kernels import Mode, use_kernel_mapping
    from kernels import kernelize as kernelize_model

    try:
        origins = _transformers_own(device_type) if source == HUB else _repository(source)
        mapping = {name: {device_type: origin.layer} for name, origin in origins.items()}
        with _marked(model, origins), use_kernel_mapping(mapping, inherit_mapping=False):
            kernelize_model(model, mode=Mode.INFERENCE, device=device_type)
            counts = _replaced(model)
    except LOADING_ERRORS as error:
        raise BenchhouseError(f"kernels of {source} cannot be used: {first_line(error)}") from error
    if not counts:
        raise UnsupportedError(_nothing(model, source, origins))
    replaced: dict[str, Json] = {
        name: {"repo": origins[name].repo, "version": origins[name].version, "count": count}
        for name, count in counts.items()
    }
    return {"kernels_replaced": replaced, "kernels_package": version("kernels")}


def _repository(source: str) -> dict[str, Origin]:
    """Every layer of a repository that was named."""
    import kernels

    on_hub = ON_HUB.fullmatch(source)
    if on_hub is None:
        folder = Path(source)
        layers = _layers(kernels.get_local_kernel(folder))
        number = _local_version(folder)
        return {
            name: Origin(
                repo=source, version=number, layer=kernels.LocalLayerRepository(repo_path=folder, layer_name=name)
            )
            for name in layers
        }
    repo, number = on_hub["repo"], int(on_hub["version"])
    return {
        name: Origin(
            repo=repo, version=number, layer=kernels.LayerRepository(repo_id=repo, layer_name=name, version=number)
        )
        for name in _layers(kernels.get_kernel(repo, version=number))
    }


def _layers(kernel: Any) -> list[str]:
    """The names of the layers in a loaded kernel."""
    from torch import nn

    found = vars(getattr(kernel, "layers", object)).items()
    return [name for name, value in found if isinstance(value, type) and issubclass(value, nn.Module)]


def _local_version(folder: Path) -> int | None:
    """The number in a build's metadata; every build of a repository has the same."""
    import json

    for path in sorted(folder.glob("build/*/metadata.json")):
        number = json.loads(path.read_text(encoding="utf-8")).get("version")
        return number if isinstance(number, int) else None
    return None


def _transformers_own(device_type: str) -> dict[str, Origin]:
    """What transformers maps its layers to on a device, less what only those load who trust any code.

    Raises UnsupportedError when transformers does not go together with the installed package.
    """
    from transformers.integrations import hub_kernels

    if not hub_kernels.is_kernels_available():
        raise UnsupportedError(
            f"transformers {version('transformers')} takes kernels {hub_kernels.KERNELS_MIN_VERSION} up to "
            f"{hub_kernels.KERNELS_MAX_VERSION} from the hub, and {version('kernels')} is installed; "
            "--kernel-repo DIR takes a folder with any"
        )
    found: dict[str, Origin] = {}
    for name, by_device in hub_kernels.get_kernel_mapping_transformers().items():
        for_device = by_device.get(device_type)
        layer = _for_inference(for_device)
        if layer is not None and not getattr(layer, "_trust_remote_code", False):
            number = getattr(layer, "_version", None) or getattr(layer, "_revision", None)
            found[name] = Origin(repo=str(getattr(layer, "_repo_id", HUB)), version=number, layer=layer)
    return found


def _for_inference(repository: Any) -> Any:
    """The repository of a mapping's entry, which may be one for each mode."""
    from kernels import Mode

    return repository.get(Mode.INFERENCE) if isinstance(repository, dict) else repository


@contextmanager
def _marked(model: Any, origins: Mapping[str, Origin]) -> Iterator[None]:
    """Inside, the model's classes that are called like a layer are marked for the package as replaceable by it."""
    from kernels import replace_kernel_forward_from_hub

    classes = {type(module) for module in model.modules()}
    own = [kind for kind in classes if kind.__name__ in origins and "kernel_layer_name" not in vars(kind)]
    for kind in own:
        replace_kernel_forward_from_hub(kind, kind.__name__)
    try:
        yield
    finally:
        for kind in own:
            for name in ("kernel_layer_name", "kernel_condition"):
                if name in vars(kind):
                    delattr(kind, name)


def _replaced(model: Any) -> dict[str, int]:
    """Modules that run another forward than their class's, counted by the name of the layer."""
    counts: dict[str, int] = {}
    for module in model.modules():
        forward = vars(module).get("forward")
        kind = type(module)
        if forward is not None and getattr(forward, "__func__", forward) is not kind.forward:
            name = str(getattr(kind, "kernel_layer_name", kind.__name__))
            counts[name] = counts.get(name, 0) + 1
    return counts


def _nothing(model: Any, source: str, origins: Mapping[str, Origin]) -> str:
    kinds = sorted({type(module).__name__ for module in model.modules() if not list(module.children())})
    more = f" and {len(kinds) - MAX_NAMED} more" if len(kinds) > MAX_NAMED else ""
    return (
        f"no layer of {type(model).__name__} was replaced, so that it would run as it does on eager: {source} has "
        f"{', '.join(sorted(origins)) or 'no layers'}, the model {', '.join(kinds[:MAX_NAMED])}{more}"
    )
