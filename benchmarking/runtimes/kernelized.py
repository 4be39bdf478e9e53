"""PyTorch with layers replaced by optimised kernels, from the Hugging Face hub or a folder (package `kernels`).

Loading a kernel executes its repository's code. There are two sources: a named repository (a folder, or a repository of
the hub with its version), and the kernels to which transformers maps its layers. From the hub, the package loads only
what its trusted organisations published; benchhouse never grants more.

A layer of a repository replaces the model's modules whose class has its name (`GELUActivation`, `T5LayerNorm`) or is
marked with it, as transformers marks its own classes for known versions of the package.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from benchmarking.core.contracts import ForeignCode, Option, Stage
from benchmarking.core.errors import BenchhouseError, UnsupportedError, UsageError, first_line
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.plugins import are_all_assumed, version_of
from benchmarking.core.records import Cell, Device, Json, Point, Scalar, Workload
from benchmarking.runtimes.support.torch.torch_runtime import PACKAGES, SHARED_OPTIONS, TorchRuntime

OPTION = "kernel_repo"
HUB = "hub"
"""The source that means transformers' own mapping."""
ON_HUB = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+)@(?P<version>\d+)")
"""A repository of the hub with its version: "kernels-community/activation@1"."""
LOADING_ERRORS = (AssertionError, AttributeError, ImportError, OSError, RuntimeError, TypeError, ValueError)
"""The package's errors for a repository that is missing, not trusted, not for this device, or not a kernel."""
MARKS = ("kernel_layer_name", "kernel_condition")
"""The package's marks on replaceable classes."""
MAX_NAMED = 8
"""Layer classes listed in a message."""


class Kernelized(TorchRuntime):
    """The runtime `kernelized`. Its option kernel_repo is the source of the kernels: a folder, a repository of the hub
    with its version ("owner/name@1"), or "hub", the kernels that transformers maps its layers to."""

    name = "kernelized"
    packages: tuple[str, ...] = (*PACKAGES, "kernels")
    loads_quantized = False
    declared_options = (
        *SHARED_OPTIONS,
        Option(OPTION, "kernel repository (its code is executed): a folder, owner/name@VERSION, or hub", default="hub"),
    )

    def unusable(self) -> str | None:
        return super().unusable() or why_not_hub()

    def mode(self, device: Device, workload: Workload, options: Mapping[str, Scalar]) -> Mapping[str, Scalar]:
        """With folders as absolute paths. Raises UnsupportedError for transformers' mapping if transformers rejects the
        installed package, and UsageError for anything but a folder or a repository of the hub."""
        mode, requested = super().mode(device, workload, options), options.get(OPTION)
        source = HUB if requested is None else str(requested)
        if source == HUB and (why_not := why_not_hub()) is not None:
            raise UnsupportedError(why_not)
        if _is_on_hub(source):  # even if a folder has this name: the worker takes it for the hub's
            return {**mode, OPTION: source}
        folder = Path(os.path.expanduser(source))
        if not folder.is_dir():
            raise UsageError(
                f"kernel repository {source!r} is neither a folder nor a hub repository with a version (owner/name@1)"
            )
        if not (folder / "build").is_dir():
            raise UsageError(f"kernel repository {source} has no folder `build` with kernels")
        return {**mode, OPTION: str(folder.resolve())}

    def foreign_code(self, mode: Mapping[str, Scalar], model_path: str | None = None) -> ForeignCode | None:
        source = str(mode.get(OPTION, HUB))
        if _is_on_hub(source):  # the package checks the publisher
            return None
        return ForeignCode(path=source, flag=self.declared_options[-1].flag)

    def deployment(self, cell: Cell, point: Point) -> str | None:
        """None: a few lines would run the model without the kernels."""
        return None

    def change(self, model: Any, cell: Cell, stage: Stage) -> Mapping[str, Json]:
        with stage("kernelize"):
            return kernelize(model, str(cell.runtime_mode[OPTION]), cell.device.type)


def why_not_hub() -> str | None:
    """None, or why transformers cannot use kernels from the hub: the package version in its metadata differs from the
    installed one. Reads only metadata, as importing transformers takes seconds."""
    if are_all_assumed():
        return None
    from importlib.metadata import requires

    from packaging.requirements import Requirement

    installed = version_of("kernels")
    requirements = [Requirement(line) for line in requires("transformers") or ()]
    supported = next((requirement.specifier for requirement in requirements if requirement.name == "kernels"), None)
    if installed is None or supported is None or supported.contains(installed, prereleases=True):
        return None
    return (
        f"transformers {version_of('transformers')} needs kernels {supported} for the hub, found {installed}: "
        f"pip install 'kernels{supported}', or use a folder, which works with any version: --kernel-repo DIR"
    )


def _is_on_hub(source: str) -> bool:
    return source == HUB or ON_HUB.fullmatch(source) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The repository of a layer."""

    repo: str
    """Folder or hub name."""
    version: int | str | None
    """The repository's version; on the hub it may be a commit."""
    layer: Any
    """The package's reference to it."""


def kernelize(model: Any, source: str, device_type: str) -> dict[str, Json]:
    """Replace layers of a model in place; the fact `kernels_replaced` lists them by name.

    Raises BenchhouseError if the source cannot be loaded, UnsupportedError if it has no layer of this model.
    """
    from kernels import Mode, use_kernel_mapping
    from kernels import kernelize as kernelize_model

    try:
        origins = _transformers_mapping(device_type) if source == HUB else _repository(source)
        mapping = {name: {device_type: origin.layer} for name, origin in origins.items()}
        with _mark_replaceable(model, origins), use_kernel_mapping(mapping, inherit_mapping=False):
            kernelize_model(model, mode=Mode.INFERENCE, device=device_type)
            counts: dict[str, int] = {}
            for module in model.modules():
                forward, kind = vars(module).get("forward"), type(module)
                if forward is not None and getattr(forward, "__func__", forward) is not kind.forward:
                    name = str(getattr(kind, "kernel_layer_name", kind.__name__))
                    counts[name] = counts.get(name, 0) + 1
    except LOADING_ERRORS as error:
        raise BenchhouseError(f"cannot use the kernels of {source}: {first_line(error)}") from error
    if not counts:
        kinds = sorted({type(module).__name__ for module in model.modules() if not list(module.children())})
        more = f" and {len(kinds) - MAX_NAMED} more" if len(kinds) > MAX_NAMED else ""
        raise UnsupportedError(
            f"no layer of {type(model).__name__} was replaced, so it would run as on the default runtime: {source} has "
            f"{', '.join(sorted(origins)) or 'no layers'}; the model has {', '.join(kinds[:MAX_NAMED])}{more}"
        )
    replaced: dict[str, Json] = {
        name: {"repo": origins[name].repo, "version": origins[name].version, "count": count}
        for name, count in counts.items()
    }
    return {"kernels_replaced": replaced, "kernels_package": version_of("kernels")}


def _repository(source: str) -> dict[str, Origin]:
    """The layers of a folder or of a repository of the hub."""
    import json

    import kernels
    from torch import nn

    version: int | None
    if (on_hub := ON_HUB.fullmatch(source)) is None:
        repo, folder = source, Path(source)
        kernel, layer_of = kernels.get_local_kernel(folder), partial(kernels.LocalLayerRepository, repo_path=folder)
        # All builds of a repository have the same version.
        metadata = next(iter(sorted(folder.glob("build/*/metadata.json"))), None)
        stated = None if metadata is None else json.loads(metadata.read_text(encoding="utf-8")).get("version")
        version = stated if isinstance(stated, int) else None
    else:
        repo, version = on_hub["repo"], int(on_hub["version"])
        kernel = kernels.get_kernel(repo, version=version)
        layer_of = partial(kernels.LayerRepository, repo_id=repo, version=version)
    return {
        name: Origin(repo=repo, version=version, layer=layer_of(layer_name=name))
        for name, value in vars(getattr(kernel, "layers", object)).items()
        if isinstance(value, type) and issubclass(value, nn.Module)
    }


def _transformers_mapping(device_type: str) -> dict[str, Origin]:
    """The layers that transformers maps on a device, without those that need permission for untrusted code.

    Raises UnsupportedError if transformers does not support the installed version of the package.
    """
    from kernels import Mode
    from transformers.integrations import hub_kernels

    if not hub_kernels.is_kernels_available():  # its own check, which may differ from its metadata
        raise UnsupportedError(
            f"transformers {version_of('transformers')} does not load kernels from the hub with kernels "
            f"{version_of('kernels')}: use a folder, which works with any version: --kernel-repo DIR"
        )
    origins: dict[str, Origin] = {}
    for name, by_device in hub_kernels.get_kernel_mapping_transformers().items():
        layer = by_device.get(device_type)
        if isinstance(layer, dict):  # one for each mode
            layer = layer.get(Mode.INFERENCE)
        if layer is not None and not getattr(layer, "_trust_remote_code", False):
            number = getattr(layer, "_version", None) or getattr(layer, "_revision", None)
            origins[name] = Origin(repo=str(getattr(layer, "_repo_id", HUB)), version=number, layer=layer)
    return origins


@contextmanager
def _mark_replaceable(model: Any, origins: Mapping[str, Origin]) -> Iterator[None]:
    """Marks the model's classes with a layer's name as replaceable while inside. A class that transformers has marked
    with another layer's name keeps that mark if the source has that layer."""
    from kernels import replace_kernel_forward_from_hub

    classes = {type(module) for module in model.modules()}
    to_mark = [kind for kind in classes if kind.__name__ in origins and vars(kind).get(MARKS[0]) not in origins]
    previous_marks = {kind: {name: vars(kind)[name] for name in MARKS if name in vars(kind)} for kind in to_mark}
    for kind in to_mark:
        replace_kernel_forward_from_hub(kind, kind.__name__)
    try:
        yield
    finally:
        for kind, marks in previous_marks.items():
            for name in MARKS:
                if name in marks:
                    setattr(kind, name, marks[name])
                elif name in vars(kind):
                    delattr(kind, name)


PLUGIN = Kernelized()
