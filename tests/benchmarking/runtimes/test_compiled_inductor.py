"""The compiled runtime with the real TorchInductor: one cold launch, then a warm one."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarking.builds.store import BuildStore
from benchmarking.core.records import Point
from benchmarking.runtimes.compiled import PLUGIN

POINT = Point(batch_size=1, sequence_length=8)


@pytest.mark.slow
def test_second_launch_reuses_compiled_code(open_torch, open_eager, tmp_path, monkeypatch):
    from torch._inductor import config, cpu_vec_isa  # takes longer than the rest of the collection of a folder

    monkeypatch.setenv("BENCHHOUSE_CACHE_DIR", str(tmp_path))
    # Before its first kernel it builds a program for each vector extension of the processor and loads it in a process
    # that imports torch, and it compiles headers that only two files include.
    monkeypatch.setattr(cpu_vec_isa, "valid_vec_isa_list", list)
    monkeypatch.setattr(config, "cpp_cache_precompile_headers", False)
    plain = open_eager("tiny-bert").operation(POINT)
    expected = plain.arrays(plain.run(lambda name: None))["last_hidden_state"]
    launches = []
    for launch in (0, 1):
        monkeypatch.setenv("BENCHHOUSE_LAUNCH", str(launch))
        session = open_torch(PLUGIN, "tiny-bert", points=(POINT,))
        operation = session.operation(POINT)
        output = operation.run(lambda name: None)
        np.testing.assert_allclose(operation.arrays(output)["last_hidden_state"], expected, atol=1e-5)
        launches.append({**operation.verified(), "missing": operation.readings(output).missing})
        session.close()
    cold, warm = launches
    kind, digest = cold["made_build"].split("/")
    build = BuildStore().find_digest(kind, digest)
    assert warm["made_build"] == cold["made_build"]
    assert build.build_s > (cold["compile_s"] + warm["compile_s"]) / 2, "the warm launch leaves the record alone"
    assert (cold["compile_cache"], warm["compile_cache"]) == ("cold", "warm")
    assert (cold["compile_cache_hits"], cold["compile_cache_misses"]) == (0, 1)
    assert (warm["compile_cache_hits"], warm["compile_cache_misses"]) == (1, 0)
    assert 0 < warm["compile_s"] < cold["compile_s"]
    assert cold["missing"]["compile_warm_s"] == "not_run: needs a second launch"
    for one in launches:
        assert (one["graph_count"], one["graph_break_count"], one["recompile_count"]) == (1, 0, 0)
        assert one["attention_kernels"] == {"flash": 2}
