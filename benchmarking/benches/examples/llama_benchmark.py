"""An example to copy: a Llama model that generates text, in the form of benchmark_v2. It measures its own times.

    benchhouse benches --include llama_benchmark
    benchhouse benches --include llama_benchmark --model-id meta-llama/Llama-2-7b-hf --device cuda

`tiny-llama` has random weights and needs no download; any other --model-id is loaded from the hub or a folder.
"""

from __future__ import annotations

import sys
import time
from logging import Logger
from typing import Any

from benchmarking import (
    BenchmarkConfig,
    BenchmarkRunner,
    ModelBenchmark,
    TimingResult,
    create_config_variants,
    flush_memory,
    measure_file,
)

TINY = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 512,
}


class LlamaBenchmark(ModelBenchmark):
    """Generates `num_tokens_to_generate` tokens for random prompts."""

    def __init__(self, logger: Logger) -> None:
        super().__init__(logger)

    def setup_model(self, config: BenchmarkConfig) -> None:
        import torch
        from transformers import AutoConfig, AutoModelForCausalLM

        model_id, dtype = str(config.model_id), getattr(torch, config.torch_dtype)
        torch.manual_seed(0)
        if model_id.startswith("tiny-"):
            tiny = AutoConfig.for_model(model_id.removeprefix("tiny-"), **TINY)
            model = AutoModelForCausalLM.from_config(tiny, dtype=dtype)
        else:
            model = AutoModelForCausalLM.from_pretrained(model_id, dtype=dtype)
        self.model = model.eval().to(config.device)
        if config.variant == "compiled":
            self.model.forward = torch.compile(self.model.forward, mode=config.compile_mode)
        shape = (config.batch_size, config.sequence_length or 16)
        self.prompt = torch.randint(model.config.vocab_size, shape, device=config.device)

    def cleanup_model(self) -> None:
        self.model = None
        flush_memory()

    def measure_time_to_first_token(self, config: BenchmarkConfig) -> float:
        return self.generate(config, 1)[0]

    def measure_latency(self, config: BenchmarkConfig) -> TimingResult:
        latency, tokens = self.generate(config, config.num_tokens_to_generate)
        return TimingResult(latency=latency, tokens_per_second=tokens / latency, total_tokens_generated=tokens)

    def generate(self, config: BenchmarkConfig, new_tokens: int) -> tuple[float, int]:
        """Seconds and tokens of a generation."""
        import torch

        self.synchronize()
        started = time.perf_counter()
        with torch.inference_mode():
            output = self.model.generate(
                self.prompt,
                attention_mask=torch.ones_like(self.prompt),
                max_new_tokens=new_tokens,
                min_new_tokens=new_tokens,
                use_cache=config.use_cache,
                do_sample=False,
                pad_token_id=0,
            )
        self.synchronize()
        return time.perf_counter() - started, (output.shape[1] - self.prompt.shape[1]) * config.batch_size


def run_llama_benchmark(
    logger: Logger, output_dir: str = "benchmark_results", model_id: str = "tiny-llama", **kwargs: Any
) -> str:
    """Called by benchhouse benches with the values of its command line."""
    base = BenchmarkConfig(
        name=model_id,
        model_id=model_id,
        sequence_length=16,
        num_tokens_to_generate=kwargs.get("num_tokens_to_generate", 8),
        warmup_iterations=kwargs.get("warmup_iterations", 3),
        measurement_iterations=kwargs.get("measurement_iterations", 5),
    )
    configs = create_config_variants(base, {"variant": ["eager"], "batch_size": [1, 2]})
    runner = BenchmarkRunner(logger, output_dir)
    return runner.save_results(model_id, runner.run_benchmark(LlamaBenchmark, configs))


if __name__ == "__main__":
    sys.exit(measure_file(__file__))
