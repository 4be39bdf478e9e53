"""How many items a call of a module holds: the batch, where its inputs show one.

Throughput counts items, so a wrong guess is off by the size of some other dimension. The first dimension is a batch
only if all inputs agree on it and the module does not use it otherwise: a vector has no batch, a graph network's first
dimension counts nodes, a recurrent module's or transformer's may be time, and an image without a batch starts with its
channels. In all other cases a call is one item, and throughput is in calls per second.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

OF_GRAPHS = re.compile(r"(^|_)(edge|adj|adjacency|laplacian|graph|node)s?(_|$)", re.IGNORECASE)
"""Arguments of graph networks, which have nodes instead of a batch."""
GRAPH_PACKAGES = ("torch_geometric", "dgl")


def batch_of(module: torch.nn.Module, tensors: Mapping[str, torch.Tensor]) -> int | None:
    """The batch of a call with these tensors, by argument; None if they do not show it."""
    shaped = {
        name: tensor
        for name, tensor in tensors.items()
        if tensor.dim() > 0
        and not ("mask" in name.lower() and tensor.dim() == 2 and tensor.shape[0] == tensor.shape[1])
    }
    sizes = {int(tensor.shape[0]) for tensor in shaped.values()}
    sizes = sizes - {1} or sizes  # an input of one row, such as positions, is for the whole batch
    if len(sizes) != 1 or all(tensor.dim() == 1 for tensor in shaped.values()) or 0 in sizes:
        return None
    return None if _counts_nodes(module, shaped) or _is_time_or_channels(module, shaped) else sizes.pop()


def _counts_nodes(module: Any, tensors: Mapping[str, Any]) -> bool:
    """Whether the first dimension counts nodes: by names of arguments and packages, by sparse matrices, or by a square
    one (an adjacency) beside features."""
    import torch

    if any(OF_GRAPHS.search(name) or tensor.layout != torch.strided for name, tensor in tensors.items()):
        return True
    if any(type(part).__module__.partition(".")[0] in GRAPH_PACKAGES for part in module.modules()):
        return True
    matrices = [tensor for tensor in tensors.values() if tensor.dim() == 2]
    is_square = any(tensor.shape[0] == tensor.shape[1] for tensor in matrices)
    return is_square and len(matrices) > 1 and any(tensor.is_floating_point() for tensor in matrices)


def _is_time_or_channels(module: Any, tensors: Mapping[str, Any]) -> bool:
    """Whether the first dimension is time (a recurrent module or transformer with the batch second), or channels (an
    image for a convolution, without a batch)."""
    import torch

    rank = max(tensor.dim() for tensor in tensors.values())
    convolution = next((part for part in module.modules() if isinstance(part, torch.nn.modules.conv._ConvNd)), None)
    if convolution is not None and rank == len(convolution.kernel_size) + 1:
        return any(tensor.shape[0] == convolution.in_channels for tensor in tensors.values())
    is_second = any(getattr(part, "batch_first", True) is False for part in module.modules())
    # An outer module that is batch-first passes its inputs on transposed, so only its own setting counts.
    return rank <= 3 and is_second and getattr(module, "batch_first", False) is False
