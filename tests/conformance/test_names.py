"""Names of devices, runtimes and families occur only in their own files; other code uses traits of the plugin.

Importers and exporters translate the words of other formats, which is what they are for: they are left out. Elsewhere
some names are words of something else too (a package, a file format, a vendor's interface): `HOMONYMS` says what each
one means where it stands. Both directions are checked, so that no entry outlives its word.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from benchmarking.core import plugins
from tests.helpers.paths import ROOT

FOLDERS = ("devices", "runtimes", "workloads")
ROOMS = ("benchmarking", "db", "visualize")
SELECTOR = re.compile(r":[\w.]*$")
"""What follows a device's name in "cuda:1" and "openvino:GPU"."""
TRANSLATORS = ("db/importers", "db/exporters")
HOMONYMS = {
    "benchmarking/commands/ab.py": {"bench": "the source of a workload"},
    "benchmarking/batch/cell_plans.py": {"bench": "the source of a workload"},
    "benchmarking/benches/examples/llama_benchmark.py": {
        "compiled": "a variant of the benchmark",
        "eager": "a variant of the benchmark",
    },
    "benchmarking/benches/model_benchmark.py": {"bench": "who times the calls"},
    "benchmarking/benches/runner.py": {"bench": "the source of a workload, and a key of its facts"},
    "benchmarking/core/codec.py": {"null": "JSON"},
    "benchmarking/core/untrusted/redaction.py": {
        "bench": "the source of a workload",
        "null": "a word for no host",
        "onnxruntime": "a word of other texts",
        "openvino": "a word of other texts",
    },
    "benchmarking/core/untrusted/input_files.py": {"null": "YAML"},
    "benchmarking/core/model_contracts.py": {"encoder-decoder": "a kind of bundle of graphs"},
    "benchmarking/core/provenance.py": {
        "bench": "the source of a workload",
        **dict.fromkeys(("ctranslate2", "mlx", "onnxruntime", "openvino", "openvino-genai", "tensorrt"), "a package"),
    },
    "benchmarking/core/records.py": {"bench": "the source of a workload"},
    "benchmarking/core/scenario_file.py": {"bench": "the source of a workload", "cuda": "a version of software"},
    "benchmarking/devices/cpu.py": {"onnxruntime": "a package"},
    "benchmarking/devices/mps.py": {"onnxruntime": "a package"},
    "benchmarking/devices/qnn.py": {"cpu": "a backend of QNN", "onnxruntime": "a package"},
    "benchmarking/devices/support/binding.py": {"cpu": "a folder of sysfs"},
    "benchmarking/devices/support/system_values.py": {"cpu": "a control group's controller, a key of /proc/cpuinfo"},
    "benchmarking/devices/support/ort_providers.py": {
        "cpu": "ONNX Runtime's name of memory",
        "cuda": "ONNX Runtime's name of memory",
    },
    "benchmarking/devices/support/torch_gpu.py": {"cuda": "torch's device"},
    "benchmarking/graphs/export/onnx_files.py": {"eager": "a kind of attention"},
    "benchmarking/commands/export_model.py": {"openvino": "a file format, and the package that writes it"},
    "benchmarking/workloads/support/graph_contents.py": {"openvino": "a file format, and the package that reads it"},
    "benchmarking/workloads/support/engine_folder.py": {
        "cpu": "a provider of ONNX Runtime",
        "cuda": "a provider of ONNX Runtime",
    },
    "benchmarking/workloads/support/exported_folder.py": {"encoder-decoder": "a kind of bundle of graphs"},
    "benchmarking/graphs/bundle.py": {"openvino": "a file format"},
    "benchmarking/graphs/exported_model.py": {"openvino": "a file format", "onnxruntime": "a package"},
    "benchmarking/graphs/export/agreement.py": {"onnxruntime": "a package"},
    "benchmarking/load/observer.py": {"llamacpp": "the beginning of the metrics of llama-server"},
    "benchmarking/measure/machine_state.py": {"cpu": "a folder of sysfs"},
    "benchmarking/runtimes/ctranslate2.py": {"cpu": "CTranslate2's device", "cuda": "CTranslate2's device"},
    "benchmarking/runtimes/onnxruntime_genai.py": {
        "cpu": "a provider of ONNX Runtime",
        "cuda": "a provider of ONNX Runtime",
        "onnxruntime": "a package",
    },
    "benchmarking/runtimes/openvino_genai.py": {"openvino": "a package"},
    "benchmarking/runtimes/qnn.py": {"onnxruntime": "a package"},
    "benchmarking/runtimes/support/onnxruntime/ort_runtime.py": {
        "cuda": "a part of a library's name",
        "onnxruntime": "a package",
        "tensorrt": "a package, and a part of a library's name",
    },
    "benchmarking/runtimes/support/openvino/compile.py": {
        "openvino": "a package, and the kind of its builds",
        "compiled": "a key of a build's facts",
    },
    "benchmarking/runtimes/support/openvino/openvino_session.py": {"cpu": "a part of a kernel's name"},
    "benchmarking/runtimes/support/torch/torch_settings.py": {"eager": "transformers' plain attention"},
    "benchmarking/runtimes/support/torch/model_loading.py": {"cpu": "torch's device", "mps": "torch's device"},
    "benchmarking/runtimes/webnn.py": {"cpu": "WebNN's kind of device"},
    "benchmarking/sweep/plan/measuring_settings.py": {"bench": "the source of a workload"},
    "benchmarking/sweep/run/worker.py": {"bench": "a key of a workload's configuration"},
    "benchmarking/workloads/state_space.py": {"cuda": "torch's device"},
    "benchmarking/workloads/support/given_modules.py": {"cpu": "torch's device"},
    "benchmarking/workloads/support/script_runs.py": {"cpu": "torch's device"},
    "benchmarking/workloads/support/synthetic_inputs.py": {"vision": "a word in the keys of configurations"},
    "benchmarking/workloads/support/transformers_models.py": {"eager": "transformers' plain attention"},
    "db/commands/export_results.py": {"openvino": "a file format"},
    "db/conflicts.py": {"null": "JSON"},
    "db/values.py": {"bench": "the only runtime whose settings are in the configuration of its workload"},
}


def plugin_names() -> set[str]:
    modules = {name for folder in FOLDERS for name in plugins.names(f"benchmarking.{folder}")}
    return modules | {name.replace("_", "-") for name in modules}


def is_own_file(path: Path, name: str) -> bool:
    return path.parent.name in FOLDERS and path.stem == name.replace("-", "_")


def foreign_names(room: str) -> set[tuple[str, str]]:
    """(file, name) for each string that is the name of a plugin with another file, or a selector of its devices."""
    names = plugin_names()
    files = [path for path in sorted((ROOT / room).rglob("*.py")) if not is_translator(path)]
    return {
        (str(path.relative_to(ROOT)), name)
        for path in files
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if (name := SELECTOR.sub("", node.value)) in names and not is_own_file(path, name)
    }


def is_translator(path: Path) -> bool:
    return str(path.relative_to(ROOT)).startswith(TRANSLATORS)


@pytest.mark.parametrize("room", ROOMS)
def test_plugin_names_occur_only_in_their_own_file(room: str) -> None:
    allowed = {(path, name) for path, words in HOMONYMS.items() if path.startswith(f"{room}/") for name in words}
    assert foreign_names(room) == allowed


def test_names_of_every_plugin_folder_are_checked() -> None:
    assert {"cpu", "eager", "encoder-only", "mixture_of_experts"} <= plugin_names()


def test_a_plugin_name_in_another_file_is_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.conformance.test_names.ROOT", tmp_path)
    folder = tmp_path / "benchmarking/runtimes"
    folder.mkdir(parents=True)
    (folder / "eager.py").write_text('NAME = "eager"\nDEVICES = ("cuda", "openvino:GPU", "a cuda:0 in a sentence")\n')
    found = {("benchmarking/runtimes/eager.py", name) for name in ("cuda", "openvino")}
    assert foreign_names("benchmarking") == found
