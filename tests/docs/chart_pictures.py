"""Takes the pictures of charts in docs/charts.md.

    python -m tests.docs.chart_pictures [--folder DIR]

They show made-up runs, so that they change only with the charts.
"""

from __future__ import annotations

import argparse
import io
import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

from benchmarking.core.records import REQUEST_RATE, Doubt, Precision, Requests, Result, Run
from db.warehouse import Warehouse
from tests.docs.page_pictures import small
from tests.helpers.load import make_load, make_requests
from tests.helpers.paths import ROOT
from tests.helpers.records import make_run
from tests.helpers.run_changes import Alter
from visualize.drawing.figure import Figure
from visualize.drawing.picture import picture
from visualize.drawing.rows import Selection, charts
from visualize.drawing.style import image

MODEL, GENERATOR, SERVED = "bert-base-uncased", "gpt2", "Qwen3-0.6B"
PICTURES = {
    "hardware_speedup": Selection(model_id=MODEL, precision="float32"),
    "runtime_comparison": Selection(model_id=MODEL, device="cpu"),
    "pareto_front": Selection(model_id=MODEL, precision="float32"),
    "batch_sequence_heatmap": Selection(model_id=GENERATOR),
    "temporal_trend": Selection(model_id="distilbert-base-uncased"),
    "sample_distribution": Selection(model_id="distilbert-base-uncased"),
    "load_frontier": Selection(model_id=SERVED),
    "load_latency": Selection(model_id=SERVED),
    "request_timeline": Selection(model_id=SERVED, device="cpu"),
}
"""Chart -> what it is drawn of; the first picture is taken."""
WIDTH_PX = 900
SESSION = "11111111-1111-7111-8111-111111111111"
SETUPS: tuple[tuple[str, str, str, Precision, float, float], ...] = (
    ("Made-up CPU", "cpu", "eager", "float32", 1.0, 0.0),
    ("Made-up CPU", "cpu", "onnxruntime", "float32", 0.62, 2e-6),
    ("Made-up CPU", "cpu", "openvino", "float32", 0.55, 3e-6),
    ("Made-up CPU", "cpu", "openvino", "int8", 0.31, 0.02),
    ("Made-up GPU", "cuda:0", "eager", "float32", 0.14, 1e-6),
    ("Made-up GPU", "cuda:0", "onnxruntime", "float32", 0.09, 2e-6),
)
"""Device, selector, runtime, precision, slowdown, error of the output."""
DAYS, SLOWER_FROM = 16, 10
SERVERS = (
    ("Made-up GPU", "cuda:0", "vllm", 9.5, 9.0, (1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0)),
    ("Made-up GPU", "cuda:0", "sglang", 11.0, 10.0, (1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0)),
    ("Made-up CPU", "cpu", "some-engine", 3.4, 28.0, (0.5, 1.0, 2.0, 3.0, 4.0)),
)
"""Device, selector, engine, requests per second that it can serve, ms per token, offered rates."""
NEW_TOKENS = 128
PLAIN: dict[str, Any] = {
    "token_ms": (), "tokens_in": 32, "tokens_out": 21, "cached_tokens": 0, "meets_limits": None, "conversation": None,
    "turn": None,
}  # fmt: skip
"""Fields that all requests have alike."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=ROOT / "docs" / "images")
    arguments = parser.parse_args()
    with Warehouse.open(":memory:") as warehouse:
        for run in (*_runs(), *loads()):
            warehouse.ingest(run)
        for name, selection in PICTURES.items():
            path = arguments.folder / f"chart_{name}.png"
            path.write_bytes(_picture(warehouse, name, selection))
            print(path, path.stat().st_size)
    return 0


def _picture(warehouse: Warehouse, name: str, selection: Selection) -> bytes:
    from PIL import Image

    chart = charts()[name]
    drawing = next(one for one in chart.draw(chart.rows(warehouse, selection)) if isinstance(one, Figure))
    drawn = Image.open(io.BytesIO(image(picture(drawing), "png")))
    made = io.BytesIO()
    drawn.resize((WIDTH_PX, drawn.height * WIDTH_PX // drawn.width), Image.Resampling.LANCZOS).save(made, "PNG")
    return small(made.getvalue())


def _runs() -> Iterator[Run]:
    for device, selector, runtime, precision, slowdown, error in SETUPS:
        run = make_run(
            session_id=SESSION, runtime=runtime, precision=precision, slowdown=slowdown, batch_sizes=(1, 4, 16),
            sequence_lengths=(128,),
        )  # fmt: skip
        run = Alter.on_device(run, device, selector, type=selector.split(":")[0])
        yield Alter.results(run, partial(_measured, selector=selector, error=error))
    grid = make_run(
        model_id=GENERATOR, family="decoder-only", batch_sizes=(1, 2, 4, 8, 16), sequence_lengths=(32, 64, 128, 256)
    )
    yield Alter.results(grid, partial(_measured, selector="cpu", error=0.0))
    yield from _over_time()


def _measured(result: Result, selector: str, error: float) -> Result:
    """The result, of a device that gains from larger batches, the more the GPU."""
    gain = result.point.batch_size ** (0.45 if selector != "cpu" else 0.12)
    scaled = {name: value / gain for name, value in result.metrics.items() if name.endswith("_ms")}
    rates = {name: value * gain for name, value in result.metrics.items() if name.endswith("_per_sec")}
    median_ms = scaled["latency_median_ms"]
    ends = {"latency_ci_low_ms": 0.985 * median_ms, "latency_ci_high_ms": 1.015 * median_ms}
    return replace(result, metrics={**result.metrics, **scaled, **rates, **ends, "output_error": error})


def _over_time() -> Iterator[Run]:
    """A series that is slower from one day on, with samples that vary."""
    chance = random.Random(15)
    for day in range(DAYS):
        started = datetime(2026, 9, 1 + day, 8, tzinfo=UTC)
        factor = (1.12 if day >= SLOWER_FROM else 1.0) * (1 + chance.gauss(0, 0.006))
        run = make_run(
            model_id="distilbert-base-uncased", batch_sizes=(1,), sequence_lengths=(32,), slowdown=factor,
            started_at=started.isoformat(), finished_at=(started + timedelta(minutes=5)).isoformat(),
        )  # fmt: skip
        torch = "2.13.0" if day < SLOWER_FROM else "2.14.0"
        own = replace(run.provenance, git_commit=None, git_commit_time=None, versions={"torch": torch})
        yield Alter.results(replace(run, provenance=own), lambda one: _with_samples(one, chance))


def loads() -> Iterator[Run]:
    """Servers under Poisson arrivals of rising rates, up to past what they can serve."""
    chance = random.Random(16)
    for device, selector, engine, capacity, token_ms, rates in SERVERS:
        run = make_load(model_id=SERVED, session_id=SESSION, engine=engine, rates=rates)
        run = Alter.on_device(run, device, selector, type=selector.split(":")[0])
        run = Alter.mode(run, **{**run.cell.runtime_mode, "slo": "ttft:300ms,tpot:50ms"})
        yield Alter.results(run, partial(_loaded, capacity=capacity, token_ms=token_ms, chance=chance))


def _loaded(result: Result, capacity: float, token_ms: float, chance: random.Random) -> Result:
    """The result at its share of the capacity: waiting grows as in a queue, and without end past it."""
    rate = result.point.axes[REQUEST_RATE]
    used = rate / capacity
    served = min(rate, 0.98 * capacity)
    first_ms = 45 + (30 * used / max(1 - used, 0.03) if used < 1 else 9000 * used)
    each_ms = token_ms * (1 + 1.6 * min(used, 1.1) ** 2)
    whole_ms = first_ms + (NEW_TOKENS - 1) * each_ms
    metrics = {
        "latency_median_ms": whole_ms, "time_to_first_token_ms": first_ms, "time_to_first_token_p99_ms": 3 * first_ms,
        "time_per_output_token_ms": each_ms, "time_per_output_token_p99_ms": 1.4 * each_ms,
        "throughput_samples_per_sec": served, "throughput_tokens_per_sec": served * NEW_TOKENS,
        "goodput_requests_per_sec": served * (0.02 if used > 1 else 0.35 if first_ms > 300 or each_ms > 50 else 1.0),
    }  # fmt: skip
    over = (Doubt(kind="over_saturated", severity="invalid"),) if used > 1 else ()
    return replace(
        result, metrics={**result.metrics, **metrics}, doubts=over, validity="invalid" if over else "valid",
        requests=(_requests(served, first_ms, each_ms, chance),), point=replace(result.point, new_tokens=NEW_TOKENS),
        extra={"load": {"is_knee": abs(used - 0.8) < 0.12}},
    )  # fmt: skip


def _requests(rate: float, first_ms: float, each_ms: float, chance: random.Random) -> Requests:
    starts = list(accumulate(chance.expovariate(rate / 1000) for _ in range(60)))
    refused = [place % 23 == 11 for place in range(len(starts))]
    sent = [start + 40 * chance.random() for start in starts]
    first = [start + first_ms * chance.uniform(0.7, 1.4) for start in sent]
    ends = [start + 20 * each_ms * chance.uniform(0.9, 1.1) for start in first]
    return make_requests(
        intended_ms=tuple(starts),
        sent_ms=tuple(sent),
        first_token_ms=tuple(None if bad else time for bad, time in zip(refused, first, strict=True)),
        end_ms=tuple(start + 3 if bad else end for bad, start, end in zip(refused, sent, ends, strict=True)),
        error=tuple("http_503" if bad else None for bad in refused),
        detail=tuple("overloaded" if bad else None for bad in refused),
        **{name: (value,) * len(starts) for name, value in PLAIN.items()},
    )


def _with_samples(result: Result, chance: random.Random) -> Result:
    """The result with samples of launches on levels of their own, and some slow calls."""
    median_ms = result.metrics["latency_median_ms"]
    launches = []
    for launch, samples in enumerate(result.samples):
        level = median_ms * (1 + 0.012 * (launch - 1))
        values = tuple(
            level * (1 + abs(chance.gauss(0, 0.01)) + (0.05 if chance.random() < 0.04 else 0)) for _ in range(120)
        )
        launches.append(replace(samples, values=values))
    ends = {"latency_ci_low_ms": 0.99 * median_ms, "latency_ci_high_ms": 1.01 * median_ms}
    return replace(result, samples=tuple(launches), metrics={**result.metrics, **ends})


if __name__ == "__main__":
    raise SystemExit(main())
