"""How many items a call of a module holds: its batch, where its inputs and outputs show one.

Throughput counts items, so a wrong guess is off by the size of some other dimension. The first dimension is a batch
only if all inputs agree on it and the module does not use it otherwise: a vector has no batch, a graph network's first
dimension counts nodes, a recurrent module's or transformer's may be time, and an image without a batch starts with its
channels. Any other use of it (a maximum over points, attention between them) shows in the outputs: those of an item
then depend on the other items. In all these cases a call is one item, and throughput is in calls per second.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from types import MappingProxyType
from typing import Any

from benchmarking.core.errors import UsageError
from benchmarking.core.lazy_modules import torch

OF_GRAPHS = re.compile(r"(^|_)(edge|adj|adjacency|laplacian|graph|node)s?(_|$)", re.IGNORECASE)
"""Arguments of graph networks, which have nodes instead of a batch."""
GRAPH_PACKAGES = ("torch_geometric", "dgl")
RAISED = 3.0
"""Factor of the items that are then left out: means, sums and deviations over the items differ without them."""
MAX_DIFFERENCE = 0.05
"""Of an output from itself, as a share of its largest value, and share of its values that may differ more: kernels
round, and dynamic quantization has one scale for all items."""

MAX_WAIT_S = 30.0
"""For the outputs: a module may wait for other threads of its script, which no longer call it."""

Tensors = Mapping[str, Any]


def copy_to_call(module: torch.nn.Module, arguments: Tensors = MappingProxyType({})) -> tuple[Any, dict[str, Any]]:
    """A copy of a module and the arguments of a call, whose states a call changes. The parameters are the module's
    own: another copy might not fit into memory. Raises UsageError for a module that cannot be copied."""
    own: dict[int, Any] = {id(parameter): parameter for parameter in module.parameters()}
    tensors = [value for value in arguments.values() if isinstance(value, torch.Tensor)]
    own |= {id(tensor): tensor.detach().clone() for tensor in tensors}  # deepcopy refuses those that were computed
    try:
        return deepcopy((module, dict(arguments)), own)
    except Exception as error:  # a user's objects may refuse in any way
        raise UsageError(
            f"the module cannot be copied: {error}: measure it where it is, without a device, runtime or precision"
        ) from error


def batch_of(module: torch.nn.Module, tensors: Tensors, call: Callable[[Tensors], Any] | None) -> int | None:
    """The batch of a call with these tensors, by argument; None if they and its outputs do not show it. `call` gives
    the outputs for other tensors of these shapes; without it, the inputs alone tell."""
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
    if _counts_nodes(module, shaped) or _is_time_or_channels(module, shaped):
        return None
    size = sizes.pop()
    of_items = {name: tensor for name, tensor in shaped.items() if tensor.shape[0] == size}
    return size if size == 1 or call is None or _are_apart(tensors, of_items, size, call) else None


def _are_apart(tensors: Tensors, of_items: Tensors, size: int, call: Callable[[Tensors], Any]) -> bool:
    """Whether the outputs of each item stay the same with other items beside it: the items of the second half, each
    twice. Also if that cannot be told, since the call fails, does not end, or gives other values each time."""
    places = [size // 2 + place // 2 for place in range(size)]
    whole = {**tensors, **{name: _told_apart(tensor, size // 2) for name, tensor in of_items.items()}}
    half = {name: tensor[places] if name in of_items else tensor for name, tensor in whole.items()}
    found = []

    def compare() -> None:
        with torch.no_grad():
            try:
                all_items = _outputs(call(whole))
            except Exception:  # noqa: BLE001 - a user's code may fail in any way
                return
            try:
                are_alike = _are_alike(all_items, _outputs(call(half)), places)
                found.append(are_alike or not all(map(_is_close, all_items, _outputs(call(whole)))))
            except Exception:  # noqa: BLE001 - as above
                found.append(False)

    thread = threading.Thread(target=compare, daemon=True)
    thread.start()
    thread.join(MAX_WAIT_S)
    return found[0] if found else True


def _told_apart(tensor: Any, half: int) -> Any:
    """The items, with other values if those of the second half are equal, and those of the first half raised. Numbers
    of tokens stay."""
    if not tensor.is_floating_point():
        return tensor
    raised = tensor.clone()
    if bool((raised[half:] == raised[-1:]).all()):
        chance = torch.rand(raised.shape, generator=torch.Generator().manual_seed(0))
        raised += chance.to(raised)
    raised[:half] *= RAISED
    return raised


def _outputs(output: Any) -> list[Any]:
    from torch.utils import _pytree

    return [leaf for leaf in _pytree.tree_leaves(output) if isinstance(leaf, torch.Tensor)]


def _are_alike(outputs: Sequence[Any], others: Sequence[Any], places: Sequence[int]) -> bool:
    """Whether the other outputs are those of the items at these places. The items are the first dimension of an output
    at least; of others, such as states, they may be another one, and a single number, such as a loss, is of all."""
    if [tensor.shape for tensor in outputs] != [tensor.shape for tensor in others]:
        return False
    are_first = not outputs
    for output, other in zip(outputs, others, strict=True):
        dimensions = [place for place, size in enumerate(output.shape) if size == len(places)]
        found = next((at for at in dimensions if _is_close(output[(slice(None),) * at + (places,)], other)), None)
        if found is None and output.dim() > 0 and not _is_close(output, other):
            return False
        are_first = are_first or found == 0
    return are_first


def _is_close(output: Any, other: Any) -> bool:
    if output.is_floating_point() or output.is_complex():
        wanted, found = torch.nan_to_num(output), torch.nan_to_num(other)
        is_off = (wanted - found).abs() > MAX_DIFFERENCE * found.abs().max()
    else:
        is_off = output != other
    return float(is_off.double().mean()) <= MAX_DIFFERENCE


def _counts_nodes(module: Any, tensors: Mapping[str, Any]) -> bool:
    """Whether the first dimension counts nodes: by names of arguments and packages, by sparse matrices, or by a square
    one (an adjacency) beside features."""
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
    rank = max(tensor.dim() for tensor in tensors.values())
    convolution = next((part for part in module.modules() if isinstance(part, torch.nn.modules.conv._ConvNd)), None)
    if convolution is not None and rank == len(convolution.kernel_size) + 1:
        return any(tensor.shape[0] == convolution.in_channels for tensor in tensors.values())
    is_second = any(getattr(part, "batch_first", True) is False for part in module.modules())
    # An outer module that is batch-first passes its inputs on transposed, so only its own setting counts.
    return rank <= 3 and is_second and getattr(module, "batch_first", False) is False
