"""What a call computes and moves, counted while torch runs it operator by operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarking.records import Readings


def counted(call: Callable[[], Any]) -> Readings:
    """`flops` of one call: two for each multiply-add of its matrix products, convolutions and attention.

    Counted by torch's own FlopCounterMode, which leaves element-wise work out.
    """
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        call()
    return Readings(values={"flops": counter.get_total_flops()})
