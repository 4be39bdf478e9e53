"""The settings of a load that tell it apart, where a file states them: the length of answers, the number of prompts
that are sent at once, and whether the server drafts tokens."""

from __future__ import annotations

import json
import shutil

import pytest

from db.importers.aiperf import PLUGINS as OF_NVIDIA
from db.importers.guidellm import PLUGIN as GUIDELLM
from db.importers.inference_perf import INFERENCE_PERF
from db.importers.serving_clients import SERVE
from db.importers.support.files import read_file
from db.importers.vllm_printed import PLUGIN as PRINTED
from tests.helpers.imported_files import importer_for
from tests.helpers.paths import FIXTURES

IMPORTS = FIXTURES / "imports"
AIPERF, GENAI_PERF = OF_NVIDIA
LENGTH = "output_tokens_requested"


def test_answers_of_other_requested_lengths_are_other_points_where_the_file_states_the_length(tmp_path):
    """Their mean varies from run to run, and is no part of a point."""

    def requested(importer, name, changes, *lengths):
        for length in lengths:
            data = json.loads((IMPORTS / name).read_text())
            changes(data, length)
            (tmp_path / "load.json").write_text(json.dumps(data))
            run = next(iter(importer.runs(read_file(tmp_path / "load.json"))))
            yield run.results[0].point.axes.get(LENGTH)

    def shorter(metrics):
        metrics["output_sequence_length"] |= {"min": 3.0, "avg": 12.0}

    def aiperf(data, length):
        shorter(data)
        data["input_config"]["datasets"][0]["prompts"]["osl"]["mean"] = length

    def first_aiperf(data, length):
        shorter(data)
        data["input_config"] |= {"datasets": None, "input": {"prompt": {"output_tokens": {"mean": length}}}}

    def genai_perf(data, length):
        shorter(data)
        data["input_config"]["input"]["output_tokens"]["mean"] = length

    def guidellm(data, length):
        data["config"]["spec"]["data"][0]["output_tokens"] = length
        data["benchmarks"][0]["metrics"]["output_token_count"]["successful"] |= {"min": 3}

    def first_guidellm(data, length):
        guidellm(data, length)
        data |= {"config": None, "args": {"data": [f"prompt_tokens=32,output_tokens={length}"]}}

    export = "aiperf/profile_export_aiperf.json"
    assert list(requested(AIPERF, export, aiperf, 64, 128.0)) == [64, 128]
    assert list(requested(AIPERF, export, first_aiperf, 64, None)) == [64, None]
    export = "genai_perf/profile_export_genai_perf.json"
    assert list(requested(GENAI_PERF, export, genai_perf, 64, "")) == [64, None]
    for changes in (guidellm, first_guidellm):
        assert list(requested(GUIDELLM, "guidellm/benchmarks.json", changes, 16, 64)) == [16, 64]


def test_a_length_of_the_users_metadata_and_a_drafting_server_tell_vllms_loads_apart(tmp_path):
    load = json.loads((IMPORTS / "vllm_bench_serve/server_of_vllm.json").read_text())
    load["total_output_tokens"] = load["completed"] * 7 + 1
    found = []
    for changes in ({}, {"output_len": "500"}, {"output_len": "long"}, {"spec_decode_acceptance_rate": 70.0}):
        (tmp_path / "load.json").write_text(json.dumps(load | changes))
        (run,) = SERVE.runs(read_file(tmp_path / "load.json"))
        found.append((run.results[0].point.axes.get(LENGTH), run.cell.runtime_mode.get("speculation")))
    assert found == [(None, None), (500, None), (None, None), (None, True)]


def test_a_stage_has_the_output_length_of_its_configuration(tmp_path):
    shutil.copytree(FIXTURES / "import_folders/inference_perf_rate", tmp_path / "load")
    stage, config = (tmp_path / "load" / name for name in ("stage_0_lifecycle_metrics.json", "config.yaml"))
    data = json.loads(stage.read_text())
    data["successes"]["output_len"] |= {"min": 1}
    stage.write_text(json.dumps(data))
    config.write_text(f"{config.read_text()}data:\n  type: random\n  output_distribution:\n    mean: 50\n")
    (run,) = INFERENCE_PERF.runs(read_file(stage))
    assert run.results[0].point.axes[LENGTH] == 50


BLOCK = """============ Serving Benchmark Result ============
Successful requests:                     {completed}
Benchmark duration (s):                  10.00
Total input tokens:                      6400
Total generated tokens:                  3211
Request throughput (req/s):              10.00
Mean TTFT (ms):                          50.00
==================================================
"""


@pytest.mark.parametrize(
    ("above", "axes"),
    [
        ("Traffic request rate: inf\nMaximum request concurrency: None\n", {"num_prompts": 100}),
        ("Traffic request rate: inf\nMaximum request concurrency: 8\n", {}),
        ("vllm bench serve --random-output-len 128 --num-prompts 100\n", {"num_prompts": 100, LENGTH: 128}),
        ("Namespace(dataset_name='sharegpt', random_output_len=128, sharegpt_output_len=None)\n", {}),
        ("Namespace(dataset_name='sharegpt', random_output_len=128, sharegpt_output_len=64)\n", {LENGTH: 64}),
    ],
)
def test_a_printed_load_has_the_settings_above_it(tmp_path, above, axes):
    (tmp_path / "load.log").write_text(above + BLOCK.format(completed=100))
    (run,) = PRINTED.runs(read_file(tmp_path / "load.log"))
    assert run.results[0].point.axes == axes


def test_loops_and_limits_that_a_file_does_not_state_are_not_stated(tmp_path):
    genai = IMPORTS / "genai_perf/gpt2-openai-chat-concurrency2/profile_export_genai_perf.csv"
    served = json.loads((IMPORTS / "vllm_bench_serve/server_of_vllm.json").read_text())
    cut = {name: value for name, value in served.items() if name not in ("request_rate", "max_concurrency")}
    response = {"error_code": None, "end_to_end_latency_s": 1.0, "ttft_s": 0.1, "number_output_tokens": 100}
    files = {
        "profile_export_genai_perf.csv": genai.read_bytes(),
        "table.csv": (IMPORTS / "aiperf/table.csv").read_bytes(),
        "cut.json": json.dumps(cut).encode(),
        "responses.json": json.dumps([response] * 3).encode(),
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
        file = read_file(tmp_path / name)
        (run,) = importer_for(file).runs(file)
        assert "concurrency_not_stated" in [doubt.kind for doubt in run.results[0].doubts], name
        assert run.cell.runtime_mode["loop"] == "not stated", name
    (of_folder,) = GENAI_PERF.runs(read_file(genai))
    assert (of_folder.results[0].point.concurrency, of_folder.cell.runtime_mode["loop"]) == (2, "closed")
