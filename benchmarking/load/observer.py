"""Observes a server during its levels: its own metrics, and the memory and devices that it uses on this machine.

A process of its own samples them, so that it does not delay the requests. It reads the server's metrics, the resident
memory of its processes with their descendants, each GPU of this machine, and a device exporter if one is named.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from glob import glob
from statistics import fmean
from typing import Any

from benchmarking.core.device_contracts import USE_NAMES, Gauge
from benchmarking.core.doubts import doubt
from benchmarking.core.errors import BenchhouseError, first_line
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.metrics import MS_PER_S, NS_PER_MS, bytes_to_mb
from benchmarking.core.records import Device, Doubt, Json, Readings, Requests, Samples, from_json, to_json
from benchmarking.devices.support.gauges import ProcessTree, SeveralGauge, open_gauge
from benchmarking.devices.support.kinds import processor
from benchmarking.load.connections import Target
from benchmarking.load.server_pages import STATES, device_use, read, state
from benchmarking.measure.monitor import (
    RESIDENT,
    SERIES,
    TIMES,
    Sampler,
    Usage,
    found_gpus,
    sample_until_the_end,
)

INTERVAL_S = 0.5
_, USED, POWER = USE_NAMES
UNITS: Mapping[str, str] = {
    "server_kv_cache_percent": "percent",
    "server_prompt_tokens": "tokens",
    "server_prefix_hits": "tokens",
    "server_queue_time": "s",
}
"""Of the readings that are no numbers of requests."""
COUNTERS = ("server_prompt_tokens", "server_prefix_hits", "server_queued", "server_queue_time")
"""Readings that the server has counted since its start: stored are the counts since the first sample."""
RATIOS: Mapping[str, tuple[str, str, float]] = {
    "server_prefix_hit_percent": ("server_prefix_hits", "server_prompt_tokens", 100.0),
    "server_queue_time_mean_ms": ("server_queue_time", "server_queued", MS_PER_S),
}
"""Metric -> the counters whose quotient it is, and the factor of its unit."""
RAW: Mapping[str, tuple[str, str]] = {
    **{name: (name, UNITS.get(name, "requests")) for name in STATES},
    **SERIES,
}
"""Readings, and the raw metric and unit under which each is stored."""
MOST_SAMPLES = 1000
"""Samples of a level that are stored; of more, evenly spaced ones."""
LEAST_SAMPLES = 3
"""Fewer show no course over time."""
LEAST_SHARE = 0.5
"""Minimum share of the samples with a reading, since a server may not answer all requests for its metrics in time."""
FULL_PERCENT = 99.0
"""Use of the KV cache from which it counts as full."""
GPU_NODES = ("/dev/nvidia*", "/dev/nvmap", "/dev/kfd", "/dev/dri/renderD*", "/dev/dxg")
"""Files by which processes on Linux reach GPUs, also in containers and in WSL."""
MOST_UNANSWERED = 4
"""A server that shows no metrics so many times is not asked again."""


class ServerObserver(Sampler):
    """Samples a server's metrics, its processes on this machine with the GPUs here, and an exporter of its devices."""

    module = "benchmarking.load.observer"

    def __init__(
        self, target: Target, process_ids: Sequence[int] = (), *, with_children: bool, exporter: Target | None = None
    ) -> None:
        """`process_ids` are empty for a server on another machine; `with_children` as in `DeviceMonitor`."""
        super().__init__(sample_interval=INTERVAL_S)
        self._target, self._exporter = target, exporter
        self._process_ids, self._with_children = process_ids, with_children

    @property
    def subject(self) -> str:
        return self._target.url

    def question(self) -> Mapping[str, Json]:
        return {
            "target": asdict(self._target),
            "exporter": None if self._exporter is None else asdict(self._exporter),
            "process_ids": list(self._process_ids),
            "with_children": self._with_children,
            "devices": [to_json(one) for one in found_gpus()] if self._process_ids and may_have_gpus() else [],
        }


def may_have_gpus() -> bool:
    """Whether a driver of this machine shows a GPU to processes: finding none by each vendor's library takes seconds.
    True where that is not known."""
    return sys.platform != "linux" or any(glob(pattern) for pattern in GPU_NODES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What was observed while a level was measured."""

    samples: tuple[Samples, ...] = ()
    """One value per time in each, so that they can be joined by position."""
    metrics: Mapping[str, float]
    doubts: tuple[Doubt, ...] = ()


def observed(usage: Usage, requests: Requests) -> Observed:
    """What the samples of a level say: their series, extremes, energy, and doubts."""
    names = [name for name in RAW if len(usage.series(name)) > LEAST_SHARE * len(usage.samples)]
    kept = [one for one in usage.samples if all(name in one.values for name in names)]
    if len(kept) < LEAST_SAMPLES or not names:
        return Observed(metrics={})
    values = {name: [one.values[name] for one in kept] for name in names}
    for name in (name for name in COUNTERS if name in values):
        values[name] = [value - values[name][0] for value in values[name]]
        if min(values[name]) < 0:  # it counts anew
            del values[name]
    names = [name for name in names if name in values]
    metrics = {
        metric: convert(values[name])
        for metric, name, convert in (
            ("server_memory_max_mb", RESIDENT, lambda found: bytes_to_mb(max(found))),
            ("server_device_memory_max_mb", USED, lambda found: bytes_to_mb(max(found))),
            ("server_running_mean", "server_running", fmean),
            ("server_waiting_max", "server_waiting", max),
            ("server_kv_cache_max_percent", "server_kv_cache_percent", max),
            ("server_power_mean_w", POWER, fmean),
        )
        if name in values
    }
    metrics |= _energy(values, requests)
    for metric, (part, whole, factor) in RATIOS.items():
        if part in values and whole in values and values[whole][-1] > 0:
            metrics[metric] = factor * values[part][-1] / values[whole][-1]
    doubts = []
    counts = values.get("server_preemptions", ())
    if counts and (preempted := counts[-1] - counts[0]) > 0:
        metrics["server_preempted_requests"] = preempted
        doubts.append(doubt("server_preempted", preemptions=preempted))
    if (fullest := metrics.get("server_kv_cache_max_percent")) is not None and fullest >= FULL_PERCENT:
        doubts.append(doubt("kv_cache_full", kv_cache_max_percent=fullest))
    step = -(-len(kept) // MOST_SAMPLES)
    series = {TIMES: ("ms", [(one.at_ns - kept[0].at_ns) / NS_PER_MS for one in kept])}
    for name in names:
        metric, unit = RAW[name]
        series[metric] = unit, [bytes_to_mb(one) for one in values[name]] if unit == "MB" else values[name]
    return Observed(
        samples=tuple(
            Samples(
                launch=requests.launch,
                phase="measure",
                metric=metric,
                unit=unit,
                started_at=requests.started_at,
                values=tuple(found[::step]),
            )
            for metric, (unit, found) in series.items()
        ),
        metrics=metrics,
        doubts=tuple(doubts),
    )


def _energy(values: Mapping[str, Sequence[float]], requests: Requests) -> dict[str, float]:
    """Energy per successful request and per output token: mean power, times the time from the first scheduled start to
    the last end."""
    ends = [
        end for end, error in zip(requests.end_ms, requests.error, strict=True) if end is not None and error is None
    ]
    if POWER not in values or not ends:
        return {}
    energy_j = fmean(values[POWER]) * (max(ends) - min(requests.intended_ms)) / MS_PER_S
    counts = [count for count, error in zip(requests.tokens_out, requests.error, strict=True) if error is None]
    known = [count for count in counts if count is not None]
    per_request = {"server_energy_j_per_request": energy_j / len(ends)}
    if len(known) < len(counts) or not any(known):
        return per_request
    return {**per_request, "server_energy_j_per_token": energy_j / sum(known)}


def main() -> int:
    """Sample what stdin names until stdin ends."""
    question: dict[str, Any] = json.loads(sys.stdin.readline())
    target = Target(**question["target"])
    exporter = None if question["exporter"] is None else Target(**question["exporter"])
    process_ids = question["process_ids"]
    own: Gauge | None = None
    devices: Gauge | None = None
    try:
        if process_ids:
            cpu = Device(type=processor().name, selector=processor().name, found=True)
            own = open_gauge(cpu, ProcessTree(process_ids[0]) if question["with_children"] else process_ids)
        if gauges := [open_gauge(from_json(Device, one), process_ids) for one in question["devices"]]:
            devices = SeveralGauge(gauges)
    except BenchhouseError as error:
        print(first_line(error), file=sys.stderr)
        return 1
    unanswered = 0

    def sample() -> Readings:
        nonlocal unanswered
        found = Readings() if own is None else own.conditions() | own.read()
        if devices is not None:
            found |= devices.read()
        if unanswered < MOST_UNANSWERED:
            values = state(metrics := read(target))
            unanswered = 0 if metrics else unanswered + 1
            found |= Readings(values=values)
        return found if exporter is None else found | Readings(values=device_use(read(exporter)))

    sample_until_the_end(question["interval_s"], sample)
    for one in (own, devices):
        if one is not None:
            one.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
