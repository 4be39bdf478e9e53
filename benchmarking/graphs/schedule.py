"""The steps of a denoising call from what a bundle holds of the schedule: plain numbers, no diffusers.

facts["schedule"] = {"alphas": share of the image left after each trained step, "last": after the very last,
                     "offset": what is added to every step's time}
"""

from __future__ import annotations

from typing import Any

from benchmarking.graphs.bundle import Bundle
from benchmarking.records import Point
from benchmarking.workloads._denoising import Step, step_between


def steps_of(bundle: Bundle, point: Point) -> tuple[Step, ...]:
    """The steps of a call, from noise to image: evenly spaced in the trained ones, counted from the image ("leading"
    spacing of DDIM), so that step k of n is at time k * (trained // n) + offset."""
    schedule: Any = bundle.facts["schedule"]
    alphas, last, offset = schedule["alphas"], schedule["last"], schedule["offset"]
    count = int(point.axes["steps"])
    stride = len(alphas) // count
    times = [index * stride + offset for index in reversed(range(count))]
    return tuple(step_between(time, alphas[time], alphas[time - stride] if time >= stride else last) for time in times)
