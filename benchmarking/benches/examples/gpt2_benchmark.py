"""An example to copy: GPT-2, timed from outside, with a time for each token.

    benchhouse benches --include gpt2_benchmark
    benchhouse benches --include gpt2_benchmark --model-id gpt2 --num-tokens-to-generate 64

`tiny-gpt2` has random weights and needs no download; any other --model-id is loaded from the hub or a folder.
"""

from __future__ import annotations

import sys

from benchmarking import BenchmarkConfig, ModelBenchmark, create_config_variants, measure_file

TINY = {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 256, "vocab_size": 512}


class Gpt2Benchmark(ModelBenchmark):
    """A loop of greedy decoding with a cache of keys and values."""

    marks_tokens = True
    configs = create_config_variants(
        BenchmarkConfig(model_id="tiny-gpt2", sequence_length=16, num_tokens_to_generate=8), {"batch_size": [1, 2]}
    )

    def setup_model(self) -> None:
        import torch
        from transformers import AutoConfig, AutoModelForCausalLM

        model_id, dtype = str(self.config.model_id), getattr(torch, self.config.precision)
        torch.manual_seed(0)
        if model_id.startswith("tiny-"):
            tiny = AutoConfig.for_model(model_id.removeprefix("tiny-"), **TINY)
            model = AutoModelForCausalLM.from_config(tiny, dtype=dtype)
        else:
            model = AutoModelForCausalLM.from_pretrained(model_id, dtype=dtype)
        self.model = model.eval().to(self.torch_device)
        shape = (self.config.batch_size, self.config.sequence_length or 16)
        self.prompt = torch.randint(model.config.vocab_size, shape, device=self.torch_device)

    def run(self) -> list[list[int]]:
        import torch

        tokens, cache, generated = self.prompt, None, []
        with torch.inference_mode():
            for _ in range(self.config.new_tokens or 1):
                output = self.model(input_ids=tokens, past_key_values=cache, use_cache=True)
                cache, tokens = output.past_key_values, output.logits[:, -1:].argmax(dim=-1)
                generated.append(tokens.flatten().tolist())  # on the host
                self.mark("token")
        return generated

    def problem(self, output: list[list[int]]) -> str | None:
        expected = self.config.new_tokens or 1
        return None if len(output) == expected else f"{len(output)} tokens instead of {expected}"

    def cleanup_model(self) -> None:
        self.model = None


if __name__ == "__main__":
    sys.exit(measure_file(__file__))
