"""An example to copy. It needs no torch and measures nothing real, so it runs only with --enable-mock.

    benchhouse benches --benches benches --enable-mock

To write your own: copy this file into a folder `benches/`, remove `is_mock`, load your model onto `self.torch_device`
in `setup_model`, and call it once in `run`. Warm-up, number of calls, statistics, memory, doubts and the database come
for free.
"""

from __future__ import annotations

import time

from benchmarking import BenchmarkConfig, ModelBenchmark, create_config_variants

MS_PER_TOKEN = 0.02


class MockBench(ModelBenchmark):
    """Waits instead of running a model; calls are timed from outside."""

    is_mock = True
    configs = create_config_variants(
        BenchmarkConfig(name="mock", sequence_length=16), {"variant": ["plain", "fast"], "batch_size": [1, 4]}
    )

    def setup_model(self) -> None:
        tokens = self.config.batch_size * (self.config.sequence_length or 1)
        self.call_s = tokens * MS_PER_TOKEN / 1000 / (2 if self.config.variant == "fast" else 1)

    def run(self) -> list[float]:
        time.sleep(self.call_s)
        return [1.0] * self.config.batch_size

    def problem(self, output: list[float]) -> str | None:
        return None if len(output) == self.config.batch_size else f"{len(output)} rows"

    def cleanup_model(self) -> None:
        self.call_s = 0.0


class MockGeneration(ModelBenchmark):
    """Measures its own times and returns them in milliseconds."""

    is_mock = True

    @classmethod
    def configs(cls) -> tuple[BenchmarkConfig, ...]:
        base = BenchmarkConfig(name="mock-generation", sequence_length=32, new_tokens=8, options={"speed": 1.0})
        return create_config_variants(base, {"batch_size": [1, 2]})

    def setup_model(self) -> None:
        self.token_ms = MS_PER_TOKEN * self.config.batch_size / float(self.config.options["speed"])

    def measure_time_to_first_token(self) -> float:
        return self.generate(self.config.sequence_length or 0)

    def measure_latency(self) -> float:
        return self.generate((self.config.sequence_length or 0) + (self.config.new_tokens or 0))

    def generate(self, tokens: int) -> float:
        started = time.perf_counter()
        time.sleep(self.token_ms * tokens / 1000)
        return (time.perf_counter() - started) * 1000
