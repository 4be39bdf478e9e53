"""Measures a small network at three batch sizes, stores the runs, and prints a table.

python examples/measure_and_store.py [DATABASE]
"""

import sys

import torch

from benchmarking import benchmark_model
from db.warehouse import Warehouse

ITERATIONS = 100
QUESTION = """
SELECT model_id, latency_median_ms, latency_p90_ms, validity
FROM latest_results
WHERE tags['script'] = 'measure_and_store'
ORDER BY latency_median_ms
"""


def main(database: str) -> None:
    layers = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 256)).eval()
    with Warehouse.open(database) as warehouse:
        for batch_size in (1, 8, 64):
            run = benchmark_model(
                layers,
                torch.randn(batch_size, 256),
                name=f"feed-forward, batch of {batch_size}",
                iterations=ITERATIONS,
                tags={"script": "measure_and_store"},
            )
            warehouse.ingest(run)
        print(warehouse.query(QUESTION).df().to_string(index=False))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "benchmark_db.duckdb")
