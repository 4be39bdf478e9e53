"""PyTorch with layers replaced by optimised kernels, of Hugging Face's hub or of a folder (package `kernels`).

A repository's code is run when it is loaded: name only folders whose code you trust.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarking.core.contracts import Option, Stage
from benchmarking.core.errors import UsageError
from benchmarking.core.records import Cell, Device, Json, Scalar, Workload
from benchmarking.runtimes.support.torch.runtime import ATTENTION, CACHE, PACKAGES, TorchRuntime

OPTION = "kernel_repo"


class Kernelized(TorchRuntime):
    """The runtime `kernelized`. Its own mode is where the kernels come from (`kernel_repo`): a folder, a repository of
    the hub with its version ("owner/name@1"), or "hub", the kernels that transformers maps its layers to."""

    name = "kernelized"
    packages: tuple[str, ...] = (*PACKAGES, "kernels")
    declared_options = (
        ATTENTION,
        CACHE,
        Option(
            name=OPTION,
            help="kernel repository, whose code is executed: a folder, owner/name@VERSION, or hub",
            default="hub",
        ),
    )

    def mode(self, device: Device, workload: Workload, options: Mapping[str, Scalar]) -> Mapping[str, Scalar]:
        return {**super().mode(device, workload, options), OPTION: _source(options.get(OPTION))}

    def change(self, model: Any, cell: Cell, stage: Stage) -> Mapping[str, Json]:
        from benchmarking.runtimes.support.torch.hub_kernels import kernelize

        with stage("kernelize"):
            return kernelize(model, str(cell.runtime_mode[OPTION]), cell.device.type)


def _source(asked: Scalar | None) -> str:
    """Where kernels come from, a folder in full. Raises UsageError for what is neither a folder nor on the hub."""
    from benchmarking.runtimes.support.torch.hub_kernels import HUB, ON_HUB

    source = HUB if asked is None else str(asked)
    folder = Path(source).expanduser()
    if folder.is_dir():
        if not (folder / "build").is_dir():
            raise UsageError(f"kernel repository {source}: it has no folder build, where its kernels would be")
        return str(folder.resolve())
    if source == HUB or ON_HUB.fullmatch(source):
        return source
    raise UsageError(
        f"kernel repository {source!r}: neither a folder nor a repository of the hub with its version (owner/name@1)"
    )


PLUGIN = Kernelized()
