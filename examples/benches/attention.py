"""Scaled dot-product attention, causal and full, at two batch sizes.

batch_benchmark.py --benches examples/benches --devices cpu --profile quick
"""

import torch

from benchmarking import BenchmarkConfig, ModelBenchmark, create_config_variants


class Attention(ModelBenchmark):
    configs = create_config_variants(
        BenchmarkConfig(name="attention", sequence_length=256), {"variant": ["causal", "full"], "batch_size": [1, 4]}
    )

    def setup_model(self):
        shape = (self.config.batch_size, 12, self.config.sequence_length, 64)
        self.q, self.k, self.v = (torch.randn(shape, device=self.torch_device) for _ in range(3))

    def run(self):
        causal = self.config.variant == "causal"
        return torch.nn.functional.scaled_dot_product_attention(self.q, self.k, self.v, is_causal=causal)
