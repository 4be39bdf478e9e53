"""The name of a device, runtime or family is written in its own file alone; other code asks the plugin for its traits.

Some names are words of something else too: of a package, a file format, a vendor's interface. Where such a word is
meant, `HOMONYMS` says what it means there.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from benchmarking.core import plugins
from tests.helpers.paths import ROOT

FOLDERS = ("devices", "runtimes", "workloads")
ROOMS = ("benchmarking/builds", "benchmarking/graphs", "benchmarking/runtimes")
HOMONYMS = {
    "benchmarking/graphs/delivery.py": {"openvino": "a file format"},
    "benchmarking/graphs/export/agreement.py": {"onnxruntime": "a package"},
    "benchmarking/graphs/session.py": {"onnxruntime": "a package"},
    "benchmarking/runtimes/qnn.py": {"onnxruntime": "a package"},
    "benchmarking/runtimes/support/onnxruntime/runtime.py": {"onnxruntime": "a package"},
    "benchmarking/runtimes/support/openvino/build.py": {"openvino": "a package, and the kind of its builds"},
    "benchmarking/runtimes/support/openvino/compile.py": {
        "openvino": "a package",
        "compiled": "a key of a build's facts",
    },
    "benchmarking/runtimes/support/openvino/nodes.py": {"cpu": "a part of a kernel's name"},
    "benchmarking/runtimes/support/torch/attention_kernels.py": {"eager": "transformers' plain attention"},
    "benchmarking/runtimes/support/torch/model_loading.py": {"cpu": "torch's device", "mps": "torch's device"},
    "benchmarking/runtimes/tensorrt.py": {"onnxruntime": "a package"},
    "benchmarking/runtimes/webnn.py": {"cpu": "WebNN's kind of device"},
}


def plugin_names() -> set[str]:
    modules = {name for folder in FOLDERS for name in plugins.names(f"benchmarking.{folder}")}
    return modules | {name.replace("_", "-") for name in modules}


def is_own_file(path: Path, name: str) -> bool:
    return path.parent.name in FOLDERS and path.stem == name.replace("-", "_")


def foreign_names(room: str) -> set[tuple[str, str]]:
    """(file, name) for each string that is the name of a plugin with another file."""
    names = plugin_names()
    return {
        (str(path.relative_to(ROOT)), node.value)
        for path in sorted((ROOT / room).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and node.value in names and not is_own_file(path, node.value)
    }


@pytest.mark.parametrize("room", ROOMS)
def test_a_plugins_name_is_written_in_its_own_file_alone(room: str) -> None:
    allowed = {(path, name) for path, words in HOMONYMS.items() if path.startswith(f"{room}/") for name in words}
    assert foreign_names(room) == allowed


def test_names_of_every_folder_are_looked_for() -> None:
    assert {"cpu", "eager", "encoder-only", "mixture_of_experts"} <= plugin_names()


def test_a_name_in_anothers_file_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.conformance.test_plugin_names.ROOT", tmp_path)
    folder = tmp_path / "benchmarking/runtimes"
    folder.mkdir(parents=True)
    (folder / "eager.py").write_text('NAME = "eager"\nDEVICE = "cuda"\n')
    assert foreign_names("benchmarking/runtimes") == {("benchmarking/runtimes/eager.py", "cuda")}
