"""The model's part of a build's key, and the combined facts of several builds."""

from __future__ import annotations

import dataclasses
import os

from benchmarking.builds.store import Build, combined_facts, model_parts
from benchmarking.workloads.support.resolve import resolve


def test_overwritten_weights_of_equal_size_change_the_key(tmp_path):
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(b"before")
    os.utime(weights, ns=(1, 1))
    workload = dataclasses.replace(
        resolve("tiny-bert"), source="local", path=str(tmp_path), weights="pretrained", revision="names and sizes"
    )
    before = model_parts(workload)
    assert before["files"] == [["model.safetensors", 6, 1]]
    weights.write_bytes(b"after!")
    os.utime(weights, ns=(2, 2))
    assert model_parts(workload) == {**before, "files": [["model.safetensors", 6, 2]]}


def test_seeded_weights_are_known_by_their_seed():
    workload = resolve("tiny-bert")
    assert "files" not in model_parts(workload)
    assert model_parts(dataclasses.replace(workload, seed=1)) == {**model_parts(workload), "seed": 1}


def test_combined_facts_are_sums_and_new_if_any_is():
    def build(digest, build_s, size_bytes):
        return Build(
            kind="onnx",
            digest=digest,
            parts={},
            made_at="2026-11-21T00:00:00Z",
            build_s=build_s,
            size_bytes=size_bytes,
            facts={"exporter": digest},
        )

    assert combined_facts("onnx", [(build("a", 1.5, 10), False), (build("b", 2.0, 5), True)]) == {
        "kind": "onnx",
        "digest": "a",
        "digests": ["a", "b"],
        "build_s": 3.5,
        "size_bytes": 15,
        "is_new": True,
        "exporter": "a",
    }
    assert combined_facts("onnx", [(build("a", 1.5, 10), False)])["is_new"] is False
