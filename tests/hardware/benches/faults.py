"""Benchmarks whose second point fails as accelerators do: it needs more memory than there is, or asserts on the device.

tests/hardware/check.py runs them; the points before and after must be measured all the same.
"""

import torch

from benchmarking import BenchmarkConfig, ModelBenchmark, create_config_variants

PETABYTE = 1 << 50


class Tensors:
    def setup_model(self):
        self.values = torch.ones(1024, device=self.torch_device)
        self.index = torch.zeros(8, dtype=torch.int64, device=self.torch_device)


class OutOfMemory(Tensors, ModelBenchmark):
    configs = create_config_variants(BenchmarkConfig(name="out-of-memory", iterations=3), {"batch_size": [1, 2, 4]})

    def run(self):
        if self.config.batch_size == 2:
            return torch.empty(PETABYTE, dtype=torch.uint8, device=self.torch_device)
        return self.values + 1


class DeviceAssert(Tensors, ModelBenchmark):
    configs = create_config_variants(BenchmarkConfig(name="device-assert", iterations=3), {"batch_size": [1, 2, 4]})

    def run(self):
        wrong = 1 << 20 if self.config.batch_size == 2 else 0
        return self.values[self.index + wrong] + 1
