"""Reads pages of a server under load: its health, what it says of itself, its metrics; and sends a single request."""

from __future__ import annotations

import math
import re
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection, RemoteDisconnected
from itertools import chain
from statistics import fmean
from types import MappingProxyType
from urllib.parse import urlsplit

from benchmarking.core.device_contracts import USE_NAMES
from benchmarking.core.metrics import BYTES_PER_MIB
from benchmarking.load.connections import Target

MAX_BYTES = 1 << 22
LIMIT_S = 2.0
"""How long reading a page may take."""


class ClosedError(ValueError):
    """The server closed the connection instead of answering."""


def fetch(
    target: Target, path: str, body: bytes | None = None, limit_s: float = LIMIT_S, most_bytes: int = MAX_BYTES
) -> tuple[int, str]:
    """The status and text of the response to GET, or with a body to POST; the text is empty unless it is complete.
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
        connection.request("GET" if body is None else "POST", path, body, headers)
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


def _shut(opened: socket.socket) -> None:
    with suppress(OSError):
        opened.shutdown(socket.SHUT_RDWR)


PATH = "/metrics"
MOST_METRICS = 200
CACHE_COUNTERS: Mapping[str, str] = {
    "vllm:prefix_cache_hits_total": "vllm:prefix_cache_queries_total",
    "sglang:cached_tokens_total": "sglang:prompt_tokens_total",
}
"""Counter of prompt tokens from a prefix cache -> counter of all prompt tokens, for servers whose replies report cached
tokens only with an option."""
MAX_NAME = 200
"""Characters of a metric's name."""
COUNTER = re.compile(r"# TYPE ([A-Za-z_:][\w:]*) counter\s*$")
SAMPLE = re.compile(
    r"""([A-Za-z_:][\w:]*+)\s*+(?:\{(?:[^"{}]|"(?:[^"\\]|\\.)*+")*+\})?\s*+([-+]?(?:\d[\d.]*(?:[eE][-+]?\d+)?|\.\d+|[Ii]nf|[Nn]a[Nn]))(?=\s|$)"""
)
"""A line of the format: name, labels, value. It reads each character once, whatever a server sends."""
NO_METRICS = ("_bucket", "_created")
TOTAL = "_total"
MOST_VALUE = 1e300
UTILIZATION, USED, POWER = USE_NAMES
STATES: Mapping[str, tuple[str | tuple[str, ...], ...]] = MappingProxyType(
    {
        "server_running": (
            *("vllm:num_requests_running", "sglang:num_running_reqs", "llamacpp:requests_processing"),
            *("tgi_batch_current_size", "ovms_infer_req_active"),
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
            *CACHE_COUNTERS.values(),
            ("llamacpp:prompt_tokens_total", "llamacpp:prompt_tokens_cached_total"),
        ),
        "server_prefix_hits": (*CACHE_COUNTERS, "llamacpp:prompt_tokens_cached_total"),
        "server_queued": ("vllm:request_queue_time_seconds_count", "sglang:queue_time_seconds_count"),
        "server_queue_time": ("vllm:request_queue_time_seconds_sum", "sglang:queue_time_seconds_sum"),
    }
)
"""What is sampled during a level -> the metrics of vLLM, SGLang, llama-server, TGI and OVMS that state it; the first
one that a server has counts, of several in brackets their sum. The use of the KV cache is a share there."""
SHARES = ("server_kv_cache_percent",)
DEVICES: Mapping[str, tuple[tuple[str, float], ...]] = MappingProxyType(
    {
        UTILIZATION: (("DCGM_FI_DEV_GPU_UTIL", 1.0),),
        USED: (("DCGM_FI_DEV_FB_USED", BYTES_PER_MIB),),
        POWER: (("DCGM_FI_DEV_POWER_USAGE", 1.0),),
    }
)
"""Reading of a device -> the metrics of a DCGM exporter that state it, and how much of the reading's unit is one of
theirs. Several GPUs count as one: mean utilization, total memory and power."""
MACHINE_TOTAL, MACHINE_AVAILABLE = "node_memory_MemTotal_bytes", "node_memory_MemAvailable_bytes"
"""A node exporter's memory."""


def read(target: Target, path: str = PATH) -> dict[str, list[float]]:
    """Name -> its numbers, one for each set of labels; empty if the server shows none."""
    try:
        status, text = fetch(target, path)
    except (OSError, ValueError):
        return {}
    if status != HTTPStatus.OK:
        return {}
    found: dict[str, list[float]] = {}
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
        if name not in found and len(found) == MOST_METRICS:
            continue
        try:
            value = float(sample[2])
        except ValueError:  # such as 1.2.3
            continue
        values = found.setdefault(name, [])
        if math.isfinite(value) and abs(value) < MOST_VALUE:
            values.append(value)
    return found


def scraped(target: Target) -> dict[str, float]:
    """The numbers at the server's /metrics, summed over all labels; empty if there are none."""
    return {name: math.fsum(values) for name, values in read(target).items()}


def state(found: Mapping[str, list[float]]) -> dict[str, float]:
    """What a server's metrics say of its state (`STATES`). Several engines behind one address are summed; the use of
    the KV cache is that of the fullest one."""
    values: dict[str, float] = {}
    for name, sources in STATES.items():
        parts = ((source,) if isinstance(source, str) else source for source in sources)
        known = next(([*chain(*(found[one] for one in each))] for each in parts if all(map(found.get, each))), None)
        if known is not None:
            values[name] = 100 * max(known) if name in SHARES else math.fsum(known)
    return values


def device_use(found: Mapping[str, list[float]]) -> dict[str, float]:
    """The readings of devices and of the machine's memory from an exporter's metrics."""
    values: dict[str, float] = {}
    for name, sources in DEVICES.items():
        for source, factor in sources:
            if known := found.get(source):
                values[name] = factor * (fmean(known) if name == UTILIZATION else math.fsum(known))
    total, available = (math.fsum(found.get(name, ())) for name in (MACHINE_TOTAL, MACHINE_AVAILABLE))
    return {**values, "machine_used_bytes": total - available} if total and available else values


def changes(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """Name of a server metric -> its value after the level and its change, summed over all labels. The change is left
    out where it is unknown: nothing could be read before the level, or a counter fell because the server started again.
    A metric that appeared during the level has counted from 0, since servers show labels from their first use."""
    found = {}
    for name, value in after.items():
        change = value - before.get(name, 0.0)
        is_known = bool(before) and not (change < 0 and name.endswith(TOTAL))
        found[name] = {"after": value, **({"change": change} if is_known else {})}
    return found
