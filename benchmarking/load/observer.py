"""Observes a server during its levels: its own metrics, and the memory and devices that it uses on this machine; and
reads a server's pages.

A process of its own samples them, so that it does not delay the requests. It reads the server's metrics, the resident
memory of its processes with their descendants, each GPU of this machine, and a device exporter if one is named.

The pages are its health, what it says of itself and its metrics, each read within limits of size and time; `fetch` also
sends a single request.
"""

from __future__ import annotations

import json
import math
import re
import socket
import ssl
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, field
from glob import glob
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection, RemoteDisconnected
from itertools import chain, pairwise
from statistics import fmean
from typing import Any
from urllib.parse import urlsplit

from benchmarking.core.device_contracts import USE_NAMES, Gauge
from benchmarking.core.doubts import doubt
from benchmarking.core.errors import BenchhouseError, first_line
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.metrics import BYTES_PER_MIB, MS_PER_S, NS_PER_MS, bytes_to_mb
from benchmarking.core.plugins import processor
from benchmarking.core.records import (
    NOT_SUPPORTED,
    Device,
    Doubt,
    Json,
    Readings,
    Requests,
    Samples,
    from_json,
    to_json,
)
from benchmarking.devices.support.gauges import ProcessTree, SeveralGauge, open_gauge
from benchmarking.load.connections import Target
from benchmarking.measure.monitor import RESIDENT, SERIES, TIMES, Sampler, Usage, found_gpus, sample_until_the_end

MAX_BYTES = 1 << 22
LIMIT_S = 2.0
"""How long reading a page may take."""


class ClosedError(ValueError):
    """The server closed the connection instead of answering."""


def fetch(
    target: Target, path: str, body: bytes | None = None, limit_s: float = LIMIT_S, most_bytes: int = MAX_BYTES
) -> tuple[int, str]:
    """The status and text of the response to GET, or with a body to POST, with the query of the server's address; the
    text is empty unless it is complete.
    Redirects and proxies are not used, since the request contains the key. Raises OSError and ValueError."""
    parts = urlsplit(target.url)
    host = parts.hostname or ""
    if parts.scheme == "https":
        context = ssl.create_default_context(cafile=target.ca_file)
        connection: HTTPConnection = HTTPSConnection(host, parts.port, timeout=limit_s, context=context)
    else:
        connection = HTTPConnection(host, parts.port, timeout=limit_s)
    connection.connect()
    # The socket's timeout applies to each read, and a server may send a byte at a time.
    begun_s, timer = time.monotonic(), threading.Timer(limit_s, _shut, [connection.sock])
    timer.start()
    try:
        headers = {**target.headers, "Accept-Encoding": "identity"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        asked = f"{path}?{parts.query}" if parts.query else path
        connection.request("GET" if body is None else "POST", asked, body, headers)
        reply = connection.getresponse()
        text = reply.read(most_bytes + 1)
        is_whole = not reply.length and len(text) <= most_bytes
        return reply.status, text.decode("utf-8", "replace") if is_whole else ""
    except (RemoteDisconnected, ConnectionResetError, BrokenPipeError) as error:
        if time.monotonic() - begun_s >= limit_s:  # the timer closed it
            raise TimeoutError(f"no answer within {limit_s:g} s") from error
        raise ClosedError("it closes the connection without an answer") from error
    except HTTPException as error:
        raise ValueError(f"no valid HTTP: {error!r}") from error
    finally:
        timer.cancel()
        connection.close()


def why_unread(error: OSError | ValueError) -> str:
    """Why a page could not be read, for a message."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    return getattr(error, "strerror", None) or str(error)


def _shut(opened: socket.socket) -> None:
    with suppress(OSError):
        opened.shutdown(socket.SHUT_RDWR)


PATH = "/metrics"
OF_API = re.compile(rf"(?:/v\d+|{PATH})/*$")
"""The end of the path of an API, beside which the metrics are; and that of metrics themselves."""
MOST_METRICS = 200
"""Names of a page that are kept beside the `KNOWN` ones."""
MAX_NAME = 200
"""Characters of a metric's name."""
COUNTER = re.compile(r"# TYPE ([A-Za-z_:][\w:]*) counter\s*$")
SAMPLE = re.compile(
    r"""([A-Za-z_:][\w:]*+)\s*+(?:\{((?:[^"{}]|"(?:[^"\\]|\\.)*+")*+)\})?\s*+([-+]?(?:\d[\d.]*(?:[eE][-+]?\d+)?|\.\d+|[Ii]nf|[Nn]a[Nn]))(?=\s|$)"""
)
"""A line of the format: name, labels, value. It reads each character once, whatever a server sends."""
LABEL = re.compile(r"""([A-Za-z_]\w*+)="((?:[^"\\]|\\.)*+)\"""")
NO_METRICS = ("_bucket", "_created")
TOTAL = "_total"
MOST_VALUE = 1e300
UTILIZATION, USED, POWER = USE_NAMES
STATES: Mapping[str, tuple[str | tuple[str, ...], ...]] = {
    "server_running": (
        *("vllm:num_requests_running", "sglang:num_running_reqs", "llamacpp:requests_processing"),
        *("tgi_batch_current_size", "ovms_current_graphs", "ovms_infer_req_active"),
    ),
    "server_waiting": (
        *("vllm:num_requests_waiting", "sglang:num_queue_reqs", "llamacpp:requests_deferred"),
        "tgi_queue_size",
    ),
    "server_kv_cache_percent": (
        *("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "sglang:token_usage"),
        "llamacpp:kv_cache_usage_ratio",
    ),
    "server_preemptions": ("vllm:num_preemptions_total", "sglang:num_retracted_requests_total"),
    "server_prompt_tokens": (
        *("vllm:prompt_tokens_total", "sglang:prompt_tokens_total"),
        ("llamacpp:prompt_tokens_total", "llamacpp:prompt_tokens_cached_total"),
    ),
    "server_prefix_hits": (  # vLLM's own cache and its connector's (LMCache, offloading): one counter, or one of each
        *("vllm:prompt_tokens_cached_total", ("vllm:prefix_cache_hits_total", "vllm:external_prefix_cache_hits_total")),
        *("vllm:prefix_cache_hits_total", "sglang:cached_tokens_total", "llamacpp:prompt_tokens_cached_total"),
    ),
    "server_queued": ("vllm:request_queue_time_seconds_count", "sglang:queue_time_seconds_count"),
    "server_queue_time": ("vllm:request_queue_time_seconds_sum", "sglang:queue_time_seconds_sum"),
}
"""What is sampled during a level -> the metrics of vLLM, SGLang, llama-server, TGI and OVMS that state it; the first
one that a server has counts, of several in brackets their sum. The use of the KV cache is a share there."""
SHARES = ("server_kv_cache_percent",)
DEVICES: Mapping[str, tuple[str, float]] = {
    UTILIZATION: ("DCGM_FI_DEV_GPU_UTIL", 1.0),
    USED: ("DCGM_FI_DEV_FB_USED", BYTES_PER_MIB),
    POWER: ("DCGM_FI_DEV_POWER_USAGE", 1.0),
}
"""Reading of a device -> the metric of a DCGM exporter that states it, and how much of the reading's unit is one of
its. Several GPUs count as one: mean utilization, total memory and power."""
EXPORTED = {metric: name for name, (metric, _) in DEVICES.items()}
OF_PARTS = "GPU_I_ID"
"""The label of a GPU's instances (MIG). DCGM's exporter states the power of the whole GPU for each of them
(NVIDIA/dcgm-exporter#257) and 0 as their utilization, which it does not know (#216)."""
NO_UTILIZATION = f"{NOT_SUPPORTED}: DCGM knows no utilization of a GPU in MIG mode ({DEVICES[UTILIZATION][0]} is 0)"
BY_PRIORITY = re.compile(r"sglang:num_\w+_reqs")
"""Numbers of SGLang that are stated for all priorities together (priority="") and for each."""
Rank = tuple[tuple[int, str], ...]
RANKS = ("pp_rank", "tp_rank", "moe_ep_rank")
"""Labels of SGLang's processes of one engine, each of which may state the whole engine's numbers."""
MACHINE_TOTAL, MACHINE_AVAILABLE = "node_memory_MemTotal_bytes", "node_memory_MemAvailable_bytes"
"""A node exporter's memory."""
KNOWN = frozenset(EXPORTED) | {OF_PARTS, MACHINE_TOTAL, MACHINE_AVAILABLE}
KNOWN |= {name for sources in STATES.values() for one in sources for name in ((one,) if isinstance(one, str) else one)}
"""Metrics that are read, wherever they stand on a page."""


def read(target: Target) -> dict[str, list[float]]:
    """The metrics that a server shows (`metrics_at`); empty if it shows none."""
    with suppress(OSError, ValueError):
        return metrics_at(target)
    return {}


def metrics_at(target: Target) -> dict[str, list[float]]:
    """Name -> its numbers, one for each set of labels but those without a value (NaN) and those that repeat another's
    (`_subject`). Raises OSError and ValueError if the page cannot be read."""
    # Below the same path: behind a gateway with paths, those at the root are of another server.
    status, text = fetch(target, OF_API.sub("", urlsplit(target.url).path).rstrip("/") + PATH)
    if status != HTTPStatus.OK:
        raise ValueError(f"status {status}")
    found: dict[str, dict[object, tuple[Rank, float]]] = {}
    counters = set[str]()
    for line in text.split("\n"):
        if (declared := COUNTER.match(line)) is not None:
            counters.add(declared[1])
            continue
        sample = SAMPLE.match(line)
        if sample is None or len(sample[1]) > MAX_NAME or sample[1].endswith(NO_METRICS):
            continue
        # As in OpenMetrics, the name of a counter ends with _total.
        name = f"{sample[1].removesuffix(TOTAL)}{TOTAL}" if sample[1] in counters else sample[1]
        if EXPORTED.get(name) == UTILIZATION and dict(LABEL.findall(sample[2] or "")).get(OF_PARTS):
            name = OF_PARTS
        if name not in found and name not in KNOWN and len(found) >= MOST_METRICS:
            continue
        try:
            value = float(sample[3])
        except ValueError:  # such as 1.2.3
            continue
        stated = found.setdefault(name, {})
        if math.isfinite(value) and abs(value) < MOST_VALUE and (of := _subject(name, sample[2], len(stated))):
            subject, rank = of
            if subject not in stated or rank < stated[subject][0]:
                stated[subject] = rank, value
    return {name: [value for _, value in stated.values()] for name, stated in found.items()}


def _subject(name: str, text: str | None, position: int) -> tuple[object, Rank] | None:
    """What a sample with these labels is about, and its rank among those about the same, of which the lowest counts;
    None for one that does not count. Where nothing is known of the name, each is about something else."""
    if name.startswith("sglang:"):
        labels = dict(LABEL.findall(text or ""))
        if labels.get("priority") and BY_PRIORITY.fullmatch(name):
            return None
        ranks = [labels.pop(one, "") for one in RANKS]
        return frozenset(labels.items()), tuple((len(rank), rank) for rank in ranks)
    if (reading := EXPORTED.get(name)) is not None and "UUID" in (labels := dict(LABEL.findall(text or ""))):
        return (labels["UUID"], labels.get(OF_PARTS) if reading == USED else None), ()
    return position, ()


def scraped(target: Target) -> dict[str, float]:
    """The numbers at the server's /metrics, summed over all labels, NaN where none has a value; empty if there are
    none."""
    return {name: math.fsum(values) if values else math.nan for name, values in read(target).items()}


def state(found: Mapping[str, list[float]]) -> dict[str, float]:
    """What a server's metrics say of its state (`STATES`). Several engines behind one address are summed; the use of
    the KV cache is that of the fullest one."""
    values: dict[str, float] = {}
    for name in STATES:
        for sources in sources_of(name):
            if all(map(found.get, sources)):
                known = [*chain(*(found[source] for source in sources))]
                values[name] = 100 * max(known) if name in SHARES else math.fsum(known)
                break
    return values


def sources_of(name: str) -> list[tuple[str, ...]]:
    """The alternatives for a state (`STATES`): metrics of a server, which are summed."""
    return [(source,) if isinstance(source, str) else source for source in STATES[name]]


def device_use(found: Mapping[str, list[float]]) -> Readings:
    """The readings of devices and of the machine's memory from an exporter's metrics."""
    values: dict[str, Json] = {}
    for name, (source, factor) in DEVICES.items():
        if known := found.get(source):
            values[name] = factor * (fmean(known) if name == UTILIZATION else math.fsum(known))
    total, available = (math.fsum(found.get(name, ())) for name in (MACHINE_TOTAL, MACHINE_AVAILABLE))
    if total and available:
        values["machine_used_bytes"] = total - available
    if OF_PARTS in found:
        values.pop(UTILIZATION, None)
        return Readings(values=values, missing={UTILIZATION: NO_UTILIZATION})
    return Readings(values=values)


def changes(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """Name of a server metric -> its value after the level and its change, summed over all labels. The change is left
    out where it is unknown: nothing could be read before the level, the metric had no value yet, or a counter fell
    because the server started again. A metric that appeared during the level has counted from 0, since servers show
    labels from their first use."""
    found = {}
    for name, value in after.items():
        if math.isnan(value):
            continue
        change = value - before.get(name, 0.0)
        is_known = bool(before) and not math.isnan(change) and not (change < 0 and name.endswith(TOTAL))
        found[name] = {"after": value, **({"change": change} if is_known else {})}
    return found


def counted(metrics: Mapping[str, Mapping[str, float]], name: str) -> float | None:
    """By how much a state (`STATES`) rose during a level, by its `changes`; None where that is unknown."""
    for sources in sources_of(name):
        rises = [metrics.get(source, {}).get("change") for source in sources]
        if None not in rises:
            return math.fsum(rise for rise in rises if rise is not None)
    return None


NO_CHANGES: Mapping[str, Mapping[str, float]] = {}
INTERVAL_S = 0.5
UNITS: Mapping[str, str] = {
    "server_kv_cache_percent": "percent",
    "server_prompt_tokens": "tokens",
    "server_prefix_hits": "tokens",
    "server_queue_time": "s",
}
"""Of the readings that are no numbers of requests."""
COUNTERS = ("server_preemptions", "server_prompt_tokens", "server_prefix_hits", "server_queued", "server_queue_time")
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
            "devices": [to_json(device) for device in found_gpus()] if self._process_ids and may_have_gpus() else [],
        }


def may_have_gpus() -> bool:
    """Whether a driver of this machine shows a GPU to processes: finding none by each vendor's library takes seconds.
    True where that is not known."""
    return sys.platform != "linux" or any(glob(pattern) for pattern in GPU_NODES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What was observed while a level was measured, beside its requests."""

    samples: tuple[Samples, ...] = ()
    """One value per time in each, so that they can be joined by position."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    doubts: tuple[Doubt, ...] = ()


def observed(usage: Usage, requests: Requests, metrics_of: Mapping[str, Mapping[str, float]] = NO_CHANGES) -> Observed:
    """What the samples of a level say: their series, extremes, energy, and doubts. Each figure is of all samples with
    its reading; the series are of those with every reading. What the server counted is what its metrics' `changes` of
    the level say, where they are known: the samples begin and end inside the level."""
    rows = [dict(sample.values) for sample in usage.samples]
    counts = {name: rise for name in COUNTERS if (rise := counted(metrics_of, name)) is not None and rise >= 0}
    for name in COUNTERS:
        if not _count_from_the_start(rows, name):
            counts.pop(name, None)
    values: dict[str, list[float]] = {}
    for name in RAW:
        found = [row[name] for row in rows if name in row]
        if len(found) >= LEAST_SAMPLES and len(found) > LEAST_SHARE * len(rows):
            values[name] = found
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
    counts = counts or {name: values[name][-1] for name in COUNTERS if name in values}
    for metric, (part, whole, factor) in RATIOS.items():
        if part in counts and counts.get(whole, 0) > 0:
            metrics[metric] = factor * counts[part] / counts[whole]
    doubts = []
    if (preempted := counts.get("server_preemptions", 0)) > 0:
        metrics["server_preempted_requests"] = preempted
        doubts.append(doubt("server_preempted", preemptions=preempted))
    if (fullest := metrics.get("server_kv_cache_max_percent")) is not None and fullest >= FULL_PERCENT:
        doubts.append(doubt("kv_cache_full", kv_cache_max_percent=fullest))
    kept = [
        (sample.at_ns, row)
        for sample, row in zip(usage.samples, rows, strict=True)
        if values and values.keys() <= row.keys()
    ]
    series: dict[str, tuple[str, list[float]]] = {}
    if len(kept) >= LEAST_SAMPLES:
        series[TIMES] = "ms", [(at_ns - kept[0][0]) / NS_PER_MS for at_ns, _ in kept]
        for name in values:
            metric, unit = RAW[name]
            read = [row[name] for _, row in kept]
            series[metric] = unit, [*map(bytes_to_mb, read)] if unit == "MB" else read
    step = -(-len(kept) // MOST_SAMPLES)
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


def _count_from_the_start(rows: Sequence[dict[str, float]], name: str) -> bool:
    """Make a counter of the server one of the level, from its first sample; without it, and False, where it counted
    anew. One that
    appears later has counted from 0, since servers show labels from their first use: SGLang's retractions appear with
    the first one."""
    answered = [row for row in rows if not STATES.keys().isdisjoint(row)]
    first = next((place for place, row in enumerate(answered) if name in row), 0)
    for row in answered[:first]:
        row[name] = 0.0
    total = [row[name] for row in answered if name in row]
    is_anew = any(earlier > later for earlier, later in pairwise(total))
    for row in answered:
        if name in row:
            count = row.pop(name)
            if not is_anew:
                row[name] = count - total[0]
    return not is_anew


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
        return found if exporter is None else found | device_use(read(exporter))

    sample_until_the_end(question["interval_s"], sample)
    for gauge in (own, devices):
        if gauge is not None:
            gauge.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
