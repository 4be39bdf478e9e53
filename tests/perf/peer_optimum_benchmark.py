"""Wall time of a whole sweep, bert-base's fill-mask over batch 1,4 x sequence 32,128, against optimum-benchmark 0.6.0.

The peer runs in a virtual environment of its own, made on first use in --peer-venv. Both measure the same saved
BertForMaskedLM in float32; the peer with its process launcher, duration 3 s and 10 iterations; this project with the
quick profile's warm-up, one launch, and at every point as many samples as the peer took at its best-sampled one in the
round. Rounds of both alternate, so that a drift of the machine affects both alike. The first round counts FLOPs, the
later ones take them from the cache. Prints figures.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PACKAGES = ("torch==2.13.0", "optimum-benchmark==0.6.0", "transformers<5", "datasets<5")
BATCH_SIZES = (1, 4)
SEQUENCE_LENGTHS = (32, 128)

SAVE_MODEL = """
import sys
from pathlib import Path
from transformers import BertConfig, BertForMaskedLM, BertTokenizerFast
folder = Path(sys.argv[1])
words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + [f"word{i}" for i in range(30517)]
(folder / "vocab.txt").write_text("\\n".join(words))
BertTokenizerFast(vocab_file=str(folder / "vocab.txt")).save_pretrained(folder)
BertForMaskedLM(BertConfig()).save_pretrained(folder)
"""

PEER = """
import json, sys
from optimum_benchmark import Benchmark, BenchmarkConfig, InferenceConfig, ProcessConfig, PyTorchConfig
if __name__ == "__main__":
    folder, batch_size, sequence_length, out = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    config = BenchmarkConfig(
        name="peer",
        launcher=ProcessConfig(),
        scenario=InferenceConfig(
            latency=True, memory=True, duration=3, iterations=10,
            input_shapes={"batch_size": batch_size, "sequence_length": sequence_length},
        ),
        backend=PyTorchConfig(model=folder, task="fill-mask", library="transformers", device="cpu"),
    )
    report = Benchmark.launch(config)
    values = report.to_dict()["forward"]["latency"]["values"]
    open(out, "w").write(json.dumps(values))
"""


def peer_python(folder: Path) -> str:
    """The peer's interpreter, its environment made if need be."""
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", *PACKAGES], check=True)
    return str(python)


def run_peer(python: str, model: Path, scratch: Path) -> tuple[float, dict[str, list[float]]]:
    """Wall seconds of the sweep and the samples in ms by point."""
    (scratch / "peer.py").write_text(PEER)
    samples = {}
    start_s = time.perf_counter()
    for batch_size in BATCH_SIZES:
        for sequence_length in SEQUENCE_LENGTHS:
            out = scratch / "peer.json"
            command = [python, str(scratch / "peer.py"), str(model), str(batch_size), str(sequence_length), str(out)]
            subprocess.run(command, check=True, capture_output=True, cwd=scratch)  # it writes a log where it is
            samples[f"b{batch_size} s{sequence_length}"] = [value * 1e3 for value in json.loads(out.read_text())]
    return time.perf_counter() - start_s, samples


def run_ours(model: Path, iterations: int, cache: Path) -> tuple[float, dict[str, list[float]]]:
    """Wall seconds of the sweep and the samples in ms by point."""
    command = [sys.executable, "-m", "benchmarking.run_hardware_benchmark", "--model-id", str(model), "--device", "cpu"]
    command += ["--batch-sizes", _text(BATCH_SIZES), "--sequence-lengths", _text(SEQUENCE_LENGTHS)]
    command += ["--profile", "quick", "--launches", "1", "--iterations", str(iterations), "--json", "--quiet"]
    command += ["--task", "fill-mask", "--cache-dir", str(cache)]
    start_s = time.perf_counter()
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    wall_s = time.perf_counter() - start_s
    (run,) = json.loads(done.stdout)
    samples = {}
    for result in run["results"]:
        (values,) = [
            s["values"] for s in result["samples"] if s["phase"] == "measure" and s["metric"] == "latency_wall"
        ]
        samples["b{batch_size} s{sequence_length}".format(**result["point"])] = values
    return wall_s, samples


def main() -> int:
    """Print a line a point and the ratio of the wall times for each round, then the median ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer-venv", type=Path, default=Path(tempfile.gettempdir()) / "benchhouse-peer-venv")
    parser.add_argument("--rounds", type=int, default=1, metavar="N")
    arguments = parser.parse_args()
    python = peer_python(arguments.peer_venv)
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        model = scratch / "bert-base"
        model.mkdir()
        subprocess.run([python, "-c", SAVE_MODEL, str(model)], check=True, capture_output=True)
        ratios = [one_round(python, model, scratch) for _ in range(arguments.rounds)]
    print(f"median ratio of {len(ratios)} rounds: {statistics.median(ratios):.3f}")
    return 0


def one_round(python: str, model: Path, scratch: Path) -> float:
    """Our wall time over the peer's."""
    peer_s, peer = run_peer(python, model, scratch)
    ours_s, ours = run_ours(model, max(map(len, peer.values())), scratch / "cache")
    for label, values in ours.items():
        theirs = peer[label]
        print(
            f"{label}: peer {statistics.median(theirs):.1f} ms ({len(theirs)} samples), "
            f"ours {statistics.median(values):.1f} ms ({len(values)} samples)"
        )
    timed = [sum(sum(values) for values in each.values()) / 1e3 for each in (peer, ours)]
    shares = f"timed calls: peer {timed[0] / peer_s:.0%}, ours {timed[1] / ours_s:.0%}"
    print(f"whole sweep: peer {peer_s:.1f} s, ours {ours_s:.1f} s, ratio {ours_s / peer_s:.3f}; {shares}", flush=True)
    return ours_s / peer_s


def _text(values: tuple[int, ...]) -> str:
    return ",".join(map(str, values))


if __name__ == "__main__":
    sys.exit(main())
