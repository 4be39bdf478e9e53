"""Unmodified scripts are run, and the models that they call are found and measured."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import re
import shutil
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import jsonschema
import pytest
import torch
from torch.utils import _pytree

from benchmarking import benchmark_model, benchmark_script, cli
from benchmarking.builds.store import BuildKey, BuildStore
from benchmarking.commands import script as benchit
from benchmarking.core import plugins
from benchmarking.core.errors import BenchhouseError, UnsupportedError, UsageError
from benchmarking.core.plugins import device_named
from benchmarking.measure.context import PROFILES
from benchmarking.runtimes.support.torch.model_loading import verify
from benchmarking.scripts import script_models, states
from benchmarking.scripts.analysis import (
    KERAS_ELSEWHERE,
    NO_MODELS,
    TENSORFLOW_MODELS,
    Analysis,
    ScriptRequest,
    analyse,
    analysed,
    choose,
)
from benchmarking.scripts.script_models import targets
from benchmarking.sweep.plan.plan import check_loaded_plan
from benchmarking.sweep.plan.request import Request, plan_cell, runtime_named
from benchmarking.workloads.support import script_runs, shown_batch
from benchmarking.workloads.support.given_modules import PLUGIN, BuildSequence, read_sequence
from benchmarking.workloads.support.script_runs import capture_module, module_hash
from benchmarking.workloads.support.shown_batch import batch_of
from db.warehouse import Warehouse
from tests.helpers.paths import ROOT
from tests.helpers.records import make_run
from tests.helpers.run_schema import run_schema

pytestmark = pytest.mark.forked_children
SCRIPTS = ROOT / "tests" / "fixtures" / "scripts"
FORKING = {"loader"}
"""Scripts that fork, and change the handler of SIGCHLD: after that, other tests of the process crashed now and then."""
QUICK = ["--profile", "quick", "--iterations", "5", "--warmup-iterations", "1", "--quiet"]


@pytest.fixture(scope="module")
def cache(tmp_path_factory, request):
    """A cache folder of this file's, for this process and its children."""
    patch = pytest.MonkeyPatch()
    folder = tmp_path_factory.mktemp("cache")
    patch.setenv("BENCHHOUSE_CACHE_DIR", str(folder))
    yield folder
    patch.undo()


@pytest.fixture(scope="module")
def found(cache):
    """A function that analyses a script, each once: in this process, which is faster, where the script allows it."""
    known: dict[object, Analysis] = {}

    def analysis(name, *arguments, max_depth=0):
        key = (name, arguments, max_depth)
        if key not in known:
            path = sys.path.copy()
            request = ScriptRequest(path=str(SCRIPTS / f"{name}.py"), arguments=arguments, max_depth=max_depth)
            known[key] = analyse(request) if name in FORKING else analysed(request)
            sys.path[:] = path
            sys.modules.pop("net", None)
        return known[key]

    return analysis


def seen(analysis):
    """(class, executions, kinds of input) of each model."""
    return [(one.class_name, one.executions, [dict(call.signature) for call in one.calls]) for one in analysis.modules]


@pytest.mark.parametrize(
    ("script", "arguments", "models"),
    [
        ("functional", (), [("Sequential", 1, [{"input": "float32[4, 8]"}])]),
        ("net", (), [("Net", 3, [{"x": "float32[8, 8]", "scale": "2"}])]),
        ("nested", (), [("Tower", 1, [{"x": "float32[2, 8]"}])]),
        ("two_models", (), [("Net", 2, [{"x": "float32[4, 8]"}]), ("Net", 1, [{"x": "float32[4, 8]"}])]),
        ("shapes", (), [("Embedding", 4, [{"input": f"int64[2, {length}]"} for length in (3, 5, 7)])]),
        ("arguments", ("--width", "3"), [("Linear", 1, [{"input": "float32[1, 8]"}])]),
        ("failing", (), [("Linear", 1, [{"input": "float32[2, 8]"}])]),
        ("generator", (), [("GRUCell", 5, [{"input": "float32[1, 8]", "hx": "float32[1, 8]"}])]),
        ("loader", (), [("Linear", 2, [{"input": "float32[2, 8]"}])]),
    ],
)
def test_models_inputs_and_calls_of_varied_scripts_are_found(found, script, arguments, models):
    assert seen(found(script, *arguments)) == models


@pytest.fixture
def keras_found(found):
    if importlib.util.find_spec("keras") is None:
        pytest.skip("keras is not installed")
    return found("keras_model")


def test_a_keras_model_on_the_torch_backend_is_found_and_called_as_in_eval_mode(keras_found):
    assert seen(keras_found) == [("Sequential", 2, [{"inputs": "float32[2, 8]", "training": "False"}])]
    assert keras_found.modules[0].kind == "keras model"


def test_reloaded_keras_models_are_deterministic_and_seed_state_is_no_weight(keras_found):
    workload = keras_found.workload(keras_found.modules[0])
    for _ in range(2):  # names and seeds of layers are counted by process
        module, _ = PLUGIN.load(workload, dtype=torch.float32)
    assert verify(module, "float32", "cpu", None, has_own_types=True)["parameter_dtypes"] == ["float32", "int32"]
    (call,) = keras_found.modules[0].calls
    inputs = {name: torch.from_numpy(array) for name, array in PLUGIN.inputs(workload, call.point, 0).items()}
    operation = PLUGIN.torch_operation(module, workload, call.point, inputs, {})
    first, second = (operation.run(lambda name: None) for _ in range(2))
    assert torch.equal(first, second), "dropout is off"


KERAS_OF_ANOTHER_BACKEND = """
class Layer:
    def __call__(self, value):
        return value
"""


def test_keras_models_on_other_backends_are_refused(cache, tmp_path, monkeypatch):
    """As tf.keras of tensorflow 2.21 (600 MB, not among the tests) calls its layers: they are no torch modules."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "keras"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "path", [*sys.path])
    layers = tmp_path / "keras" / "src" / "layers"
    layers.mkdir(parents=True)
    (tmp_path / "keras" / "__init__.py").write_text("class config:\n    backend = staticmethod(lambda: 'tensorflow')\n")
    (layers / "layer.py").write_text(KERAS_OF_ANOTHER_BACKEND)
    script = tmp_path / "mixed.py"
    script.write_text(
        "import torch\nfrom keras.src.layers.layer import Layer\nLayer()(1)\ntorch.nn.Linear(2, 2)(torch.ones(1, 2))\n"
    )
    analysis = analysed(ScriptRequest(path=str(script)))
    for name in [name for name in sys.modules if name.partition(".")[0] == "keras"]:
        del sys.modules[name]
    assert analysis.error == KERAS_ELSEWHERE.format(elsewhere="Layer of Keras, called in line 3, uses tensorflow")
    assert [one.class_name for one in analysis.modules] == ["Linear"]


def test_a_model_is_described_with_its_place_size_and_times(found):
    (net,) = found("net").modules
    assert (net.module_class, net.kind, net.script, net.line) == ("__main__.Net", "torch module", "net.py", 16)
    assert (net.parameter_count, net.weights_bytes, net.dtype) == (72, 288, "float32")
    assert (net.depth, net.parent, net.calls[0].point.label) == (0, None, "b8")
    assert net.seconds > 0


def test_hashes_depend_on_structure_and_weights_only(found, cache):
    (net,) = found("net").modules
    first, second = found("two_models").modules
    again = capture_module(SCRIPTS / "net.py", (), 0, number=1, calls=1)
    assert again.hash == net.hash
    assert len({net.hash, first.hash, second.hash}) == 3
    again.module.layer.bias.data[0] += 1
    assert module_hash(again.module) != net.hash


def test_sub_modules_are_found_down_to_the_depth(found):
    deep = found("nested", max_depth=1).modules
    assert [(one.class_name, one.depth, one.parent) for one in deep] == [
        *(("Tower", 0, None), ("Block", 1, 1), ("Block", 1, 1)),
    ]
    everything = found("nested", max_depth=9).modules
    assert sorted(one.class_name for one in everything) == sorted(["Tower", "Block", "Block", *["Linear"] * 4])


def test_models_of_the_same_class_have_unique_names(found):
    analysis = found("two_models")
    assert [analysis.workload(one).model_id for one in analysis.modules] == ["two_models.Net", "two_models.Net-2"]
    assert [one.hash for one in analysis.modules if one.number in choose(analysis, [analysis.modules[1].hash[:5]])] == [
        analysis.modules[1].hash
    ]
    with pytest.raises(UsageError, match=r"two_models\.py::ffff: no model with this hash; found "):
        choose(analysis, ["ffff"])


def test_a_script_is_measured_before_the_next_one_runs_with_a_line_for_each(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("BENCHHOUSE_CACHE_DIR", str(tmp_path / "cache"))
    for name in ("first", "second"):
        (tmp_path / f"{name}.py").write_text("import torch\ntorch.nn.Linear(8, 8)(torch.ones(3, 8))")
    words = ["-s", str(tmp_path), "--all", "--device", "null", "--iterations", "4", "--launches", "1"]
    assert benchit.main([*words, "--json"]) == 0
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    assert [run["cell"]["workload"]["model_id"] for run in document["runs"]] == ["first.Linear", "second.Linear"]
    assert [Path(one["request"]["path"]).stem for one in document["scripts"]] == ["first", "second"]
    order = ["running first.py", "first.py: 1 model in", "1 of 1 done", "running second.py", "second.py: 1 model in"]
    places = [captured.err.index(text) for text in order]
    assert places == sorted(places)


ILL_CONDITIONED = """
import torch


class Difference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        large = 1e6 * torch.randn(512, 8)
        self.weight = torch.nn.Parameter(torch.cat([large, 1e-2 * torch.randn(512, 8) - large]))

    def forward(self, x):
        return torch.cat([x, x], dim=1) @ self.weight


Difference()(torch.randn(4, 512))
"""


def test_an_ill_conditioned_model_is_measured_with_that_doubt_and_is_no_bad_export(tmp_path, capsys, monkeypatch):
    """Its float32 outputs are sums of large values that cancel, so every order of the additions gives another one."""
    monkeypatch.setenv("BENCHHOUSE_CACHE_DIR", str(tmp_path / "cache"))
    script = script_file(tmp_path, ILL_CONDITIONED)
    words = [str(script), "--device", "cpu", "--runtime", "ort", "--json", *QUICK]
    assert benchit.main(words) == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    (result,) = run["results"]
    found = {one["kind"]: one for one in result["doubts"]}
    assert result["status"] == "ok"
    assert "output_differs" not in found
    assert found["ill_conditioned"]["evidence"]["float64_error"] > 0.1
    assert run["preparation"]["build"]["agreement"]["float64_error"] > 0.1


def script_file(folder, text):
    path = folder / "script.py"
    path.write_text(text)
    return path


def test_the_time_of_a_call_is_without_the_recording_of_calls_inside(tmp_path, monkeypatch):
    monkeypatch.setattr(script_runs, "module_hash", lambda module: time.sleep(0.5) or "")
    monkeypatch.setattr(sys, "path", sys.path[:])
    script = script_file(tmp_path, "from torch import nn, ones\nnn.Sequential(nn.Linear(2, 2))(ones(1, 2))\n")
    outer, inner = script_runs.watch_script(script, (), max_depth=1).modules
    assert (outer.depth, inner.depth) == (0, 1)
    assert inner.seconds <= outer.seconds < 0.5


@pytest.mark.parametrize("is_started", [True, False])
def test_the_time_of_a_call_includes_what_any_accelerator_still_computes(tmp_path, monkeypatch, is_started):
    """Not only CUDA's: each call is preceded and followed by a wait for the module's own device, if the script has
    started one (waiting for the current device would)."""
    waited = []
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cpu"))
    monkeypatch.setattr(torch.cpu, "is_initialized", lambda: is_started)
    monkeypatch.setattr(torch.accelerator, "synchronize", lambda device: time.sleep(0.02) or waited.append(device))
    monkeypatch.setattr(sys, "path", sys.path[:])
    script = script_file(tmp_path, "from torch import nn, ones\nnn.ReLU()(nn.Linear(2, 2)(ones(1, 2)))\n")
    linear, relu = script_runs.watch_script(script, (), max_depth=1).modules
    assert waited == ([torch.device("cpu")] * 2 + [None] * 2 if is_started else [])
    assert (min(linear.seconds, relu.seconds) >= 0.02) == is_started


@pytest.mark.parametrize(
    ("call", "batch"),
    [
        ("torch.nn.Linear(10, 5)(torch.rand(10))", None),
        ("torch.nn.Linear(10, 5)(torch.rand(4, 10))", 4),
        ("torch.nn.Conv2d(3, 8, 3)(torch.rand(3, 32, 32))", None),
        ("torch.nn.Conv2d(3, 8, 3)(torch.rand(3, 3, 32, 32))", 3),
        ("torch.nn.LSTM(8, 4)(torch.rand(12, 2, 8))", None),
        ("torch.nn.LSTM(8, 4, batch_first=True)(torch.rand(2, 12, 8))", 2),
        ("Graph()(torch.rand(6, 4), torch.ones(2, 9, dtype=torch.long))", None),
        ("Graph()(torch.rand(6, 4), torch.rand(6, 6))", None),
        ("Pair()(torch.ones(2, 7, dtype=torch.long), torch.arange(7)[None])", 2),
        ("Of(lambda x: x.max(0).values)(torch.rand(1024, 3))", None),
        ("torch.nn.Dropout()(torch.rand(4, 10))", 4),
    ],
)
def test_a_batch_is_what_all_inputs_show_and_else_a_call_is_one_item(cache, tmp_path, call, batch):
    text = (
        "import torch\nclass Graph(torch.nn.Module):\n    def forward(self, x, edge_index):\n"
        "        return x[edge_index[0].long() % len(x)]\n"
        "class Of(torch.nn.Module):\n    def __init__(self, use):\n        super().__init__()\n        self.use = use\n"
        "    def forward(self, x):\n        return self.use(x)\n"
        "class Pair(torch.nn.Module):\n    def forward(self, ids, positions):\n        return ids + positions\n"
    )
    (module,) = analysed(ScriptRequest(path=str(script_file(tmp_path, text + call)))).modules
    (found,) = module.calls
    assert (found.is_batch_known, found.point.batch_size) == (batch is not None, batch or 1)


NN = torch.nn.functional
OVER_ITEMS = (
    lambda x: x.max(0).values,
    lambda x: x.mean(0, keepdim=True),
    lambda x: x.sum(),
    lambda x: x.softmax(0),
    lambda x: x @ x.T,
    lambda x: x.cumsum(0),
    lambda x: torch.cdist(x, x),
    lambda x: x.sort(0).values,
    lambda x: NN.scaled_dot_product_attention(x, x, x),
    lambda x: x[1:] - x[:-1],
    lambda x: x[-1],
    lambda x: (x - x.mean(0)) / x.std(0),
    lambda x: torch.einsum("nd,md->nm", x, x),
    lambda x: torch.topk(x, 3, dim=0).values,
    lambda x: x.norm(dim=0),
    lambda x: x.flip(0),
    lambda x: torch.roll(x, 1, 0),
    lambda x: x.reshape(-1),
    lambda x: x.T,
    lambda x: NN.batch_norm(x, None, None, training=True),
    lambda x: NN.conv1d(x.T[None], torch.ones(4, x.shape[1], 3))[0].T,
)
OF_ITEMS = (
    (lambda x: x.softmax(1), 64),
    (lambda x: (x.mean(), x * 2), 64),  # a loss beside
    (lambda x: (x, x.T[None]), 64),  # a state of batch last
    (lambda x: x + torch.rand_like(x), 64),  # other values each time
    (lambda x: x.reshape(64, 2, 4)[:, 0], 64),  # of this number of items only
    (lambda x: None, 64),
    (lambda x: x.no_such, 64),
)


@pytest.mark.parametrize("make", [torch.rand, torch.ones, torch.zeros])
def test_a_dimension_over_which_items_mix_or_that_the_output_lacks_is_no_batch(make):
    def batch(use, size):
        return batch_of(torch.nn.Identity(), {"x": make(size, 8)}, lambda tensors: use(tensors["x"]))

    for size in (64, 8, 3):
        assert [place for place, use in enumerate(OVER_ITEMS) if batch(use, size) is not None] == []
    assert [batch(use, size) for use, size in OF_ITEMS] == [64] * len(OF_ITEMS)
    ids = torch.randint(9, (4, 3))
    embedding, lstm = torch.nn.Embedding(9, 4), torch.nn.LSTM(4, 4, batch_first=True)
    assert batch_of(lstm, {"ids": ids}, lambda tensors: lstm(embedding(tensors["ids"]))) == 4


def test_throughput_counts_calls_unless_the_user_says_what_a_call_holds(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("BENCHHOUSE_CACHE_DIR", str(tmp_path / "cache"))
    script = script_file(tmp_path, "import torch\ntorch.nn.Linear(10, 5)(torch.rand(10))")
    words = [str(script), "--device", "cpu", *QUICK]
    assert benchit.main(words) == 0
    printed = capsys.readouterr().out
    assert "calls/s" in printed
    assert re.search(r"b1: [\d.]+ milliseconds on average, [\d.e+]+ calls per second", printed)
    assert "--batch-size N says it" in printed
    (state,) = states.all_states()[0].values()
    assert re.search(r" [\d.e+]+ calls/s ", states.results_table(state.results))
    assert benchit.main([*words, "--batch-size", "10"]) == 0
    assert re.search(r"b10: [\d.]+ milliseconds on average, [\d.e+]+ items per second", capsys.readouterr().out)
    (state,) = states.all_states()[0].values()
    assert re.search(r" [\d.e+]+ items/s ", states.results_table(state.results))


def test_a_failing_scripts_whole_traceback_is_in_its_log_and_shown_on_request(cache, tmp_path, capsys, monkeypatch):
    text = (
        "import os, torch\ntorch.nn.Linear(4, 4)(torch.ones(1, 4))\nprint(os.environ['MY_TOKEN'])\n"
        "def fall(n):\n    return fall(n - 1) if n else torch.zeros(2) @ torch.zeros(3)\nfall(3)\n"
    )
    monkeypatch.setenv("MY_TOKEN", "zq7-tok-91xk")
    script = script_file(tmp_path, text)
    assert benchit.main([str(script), "--analyze-only"]) == 1
    captured = capsys.readouterr()
    log = re.search(r"whole traceback is in (\S+); shown with BENCHHOUSE_TRACEBACK=1", captured.err)[1]
    stored = Path(log).read_text()
    assert stored.count("in fall\n") == 3
    assert "[Previous line repeated 1 more time]" in stored
    printed, traceback = stored.split("Traceback (most recent call last):\n")
    assert printed == "***\n"  # the log has no secrets
    assert traceback.startswith(f'  File "{script}", line 6, in <module>')
    assert "Traceback" not in captured.err
    monkeypatch.setenv("BENCHHOUSE_TRACEBACK", "1")
    assert benchit.main([str(script), "--analyze-only"]) == 1
    assert traceback.strip() in capsys.readouterr().err


@pytest.mark.parametrize("load", ["torch.load('{path}')", "safetensors.torch.load_file('{path}')"])
def test_a_script_that_reads_a_git_lfs_pointer_is_told_so(cache, tmp_path, load):
    pointer = tmp_path / "weights.bin"
    pointer.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 132735\n")
    text = "import torch, safetensors.torch\n" + load.format(path=pointer)
    error = analysed(ScriptRequest(path=str(script_file(tmp_path, text)))).error
    assert error.endswith(f"; {pointer} is a git-lfs pointer to the file: run `git lfs pull`")


def test_an_error_with_any_line_separator_is_the_reason(cache, tmp_path):
    """Python's own lines end there too, JSON's do not."""
    script = script_file(tmp_path, "raise ValueError('one\\u2028two')")
    assert analyse(ScriptRequest(path=str(script))).error.endswith("line 1: ValueError: one\u2028two")


def test_failing_scripts_keep_their_calls_and_name_the_line(found):
    assert found("failing").error == "failing.py, line 4: ValueError: the data are missing"
    assert found("arguments").error == "it ended with exit code 2"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("import torch\ntorch.nn.functional.relu(torch.ones(2))", NO_MODELS),
        ("try:\n    import tensorflow\nexcept ImportError:\n    pass", TENSORFLOW_MODELS),
        ("def broken(:", "broken.py, line 1: SyntaxError: invalid syntax (broken.py, line 1)"),
    ],
    ids=["functions", "tensorflow", "syntax"],
)
def test_a_script_without_models_gives_the_reason(cache, tmp_path, text, error):
    script = tmp_path / "broken.py"
    script.write_text(text)
    analysis = analysed(ScriptRequest(path=str(script)))
    assert (analysis.modules, analysis.error) == ((), error)


@pytest.mark.parametrize("flag", ["--device", "--devices", "--runtime", "--runtimes"])
def test_a_message_names_the_flag_that_was_typed(flag, capsys):
    assert cli.main(["script", "net.py", flag]) == 2
    assert f"argument {flag}: expected one argument" in capsys.readouterr().err


def test_a_table_has_the_inputs_of_one_call_and_counts_the_others(found, cache, monkeypatch, capsys):
    (model,) = found("shapes").modules
    state, _ = states.opened(Path("shapes.py"), "shapes.Embedding", model)
    assert "input: int64[2, 3] and 2 more" in states.states_table([state])
    all_inputs = "input: int64[2, 3]; input: int64[2, 5]; input: int64[2, 7]"
    assert all_inputs in states.state_text(state)
    engine = states.BuildRecord(runtime="eager", device="cpu", precision="float32", kind=None, made_at=state.updated_at)
    monkeypatch.setattr(states, "all_states", lambda: ({state.name: replace(state, engines=(engine,))}, {}))
    assert cli.main(["cache", "report"]) == 0
    rows = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert [row["inputs"] for row in rows if row["kind"] == "script"] == [all_inputs], "data are complete"


def test_varying_shapes_are_points_of_one_model_with_the_inputs_of_the_script(found):
    analysis = found("shapes")
    (model,) = analysis.modules
    assert [call.point.label for call in model.calls] == ["b2 s3 call=1", "b2 s5 call=2", "b2 s7 call=3"]
    assert [call.executions for call in model.calls] == [2, 1, 1]
    workload = analysis.workload(model)
    (ids,) = PLUGIN.inputs(workload, model.calls[1].point, 0).values()
    assert ids.shape == (2, 5)


def test_models_are_captured_from_the_running_script(found):
    analysis = found("net")
    workload = analysis.workload(analysis.modules[0])
    (call,) = analysis.modules[0].calls
    module, _ = PLUGIN.load(workload, dtype=torch.float32)
    inputs = {name: torch.from_numpy(array) for name, array in PLUGIN.inputs(workload, call.point, 0).items()}
    operation = PLUGIN.torch_operation(module, workload, call.point, inputs, {})
    expected = torch.relu(module.layer(inputs["x"])) * 2
    assert torch.equal(operation.run(lambda name: None), expected)
    assert not module.training
    assert list(operation.arrays(expected)) == ["output"]


def test_scripts_with_unseeded_models_are_refused(cache, tmp_path):
    script = tmp_path / "unsteady.py"
    script.write_text(
        "import os, torch\ntorch.manual_seed(int.from_bytes(os.urandom(4)))\ntorch.nn.Linear(2, 2)(torch.ones(1, 2))"
    )
    analysis = analysed(ScriptRequest(path=str(script)))
    with pytest.raises(BenchhouseError, match=r"unsteady\.py made a different model 1 than when it was analysed"):
        PLUGIN.load(analysis.workload(analysis.modules[0]), dtype=torch.float32)


@pytest.fixture(scope="module")
def measured(cache, tmp_path_factory):
    """A script measured by the command: exit code, output and folder."""
    folder = tmp_path_factory.mktemp("measured")
    patch = pytest.MonkeyPatch()
    patch.chdir(folder)
    shutil.copy(SCRIPTS / "net.py", folder)
    capture = pytest.MonkeyPatch()
    lines: list[str] = []
    capture.setattr("builtins.print", lambda *words, **arguments: lines.append(" ".join(map(str, words))))
    flags = ["--device", "x86", "--runtime", "pytorch", "--save", "--db-path", "scripts.duckdb", "--json"]
    code = cli.main(["script", "net.py", *flags, *QUICK])
    capture.undo()
    patch.undo()
    return code, json.loads(next(line for line in lines if line.startswith("{"))), lines, folder


def test_a_script_is_measured_through_supervisor_and_warehouse(measured):
    code, document, _, folder = measured
    assert code == 0
    (run,) = document["runs"]
    assert (run["status"], run["cell"]["runtime"], run["cell"]["device"]["type"]) == ("ok", "eager", "cpu")
    assert run["cell"]["workload"]["config"]["line"] == 16
    (result,) = run["results"]
    assert (result["point"]["batch_size"], result["iterations"]) == (8, 5)
    assert run["loads"][0]["verified"]["parameter_count"] == 72
    jsonschema.validate(run, run_schema())
    with Warehouse.open(folder / "scripts.duckdb", read_only=True) as warehouse:
        (row,) = warehouse.query("select model_id, weights, status from all_results").dicts()
    assert row == {"model_id": "net.Net", "weights": "given", "status": "ok"}


def test_script_output_is_kept_separate(measured):
    _, document, lines, _ = measured
    (script,) = document["scripts"]
    assert Path(script["log"]).read_text().splitlines()[-1].startswith("net said")
    assert not [line for line in lines if "said" in line]


def test_the_state_names_build_inputs_and_results(measured, cache, capsys):
    _, document, _, _ = measured
    (state,) = states.all_states()[0].values()
    assert state.name == f"net_{state.model.short_hash}"
    assert (cache / "scripts" / state.name / "state.yaml").is_file()
    assert [(one.runtime, one.kind, one.digests) for one in state.engines] == [("eager", None, ())]
    (result,) = state.results
    (metrics,) = (one["metrics"] for one in document["runs"][0]["results"])
    assert (result.mean_latency, result.latency_units) == (metrics["latency_mean_ms"], "milliseconds")
    assert (result.throughput, result.throughput_units) == (metrics["throughput_samples_per_sec"], "items per second")
    assert cli.main(["cache", "list"]) == 0
    assert f"{state.name}  net.Net" in capsys.readouterr().out
    assert cli.main(["cache", "report"]) == 0
    (row,) = [one for one in csv.DictReader(io.StringIO(capsys.readouterr().out)) if one["kind"] == "script"]
    assert (row["model_id"], row["runtime"], row["device"], row["digest"]) == ("net.Net", "eager", "cpu", "")
    assert float(row["mean_latency_ms"]) == result.mean_latency
    assert (row["inputs"],) == state.shapes
    assert cli.main(["cache", "print", state.name[:6]]) == 0
    assert "x: float32[8, 8], scale: 2" in capsys.readouterr().out
    assert cli.main(["cache", "stats", state.name, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["point"] == "b8"


def test_a_state_is_stale_when_inputs_arguments_or_versions_change(measured, found, cache):
    analysis = found("net")
    (net,) = analysis.modules
    kept, why = states.opened(SCRIPTS / "net.py", "net.Net", net)
    assert (len(kept.results), why) == (1, None)
    (call,) = net.calls
    changes = {"signature": {"x": "float32[4, 8]"}}
    other = type(net)(**{**fields(net), "calls": (type(call)(**{**fields(call), **changes}),)})
    renewed, why = states.opened(SCRIPTS / "net.py", "net.Net", other)
    assert (renewed.results, why) == ((), f"{kept.name} is stale: input shapes changed")
    other = type(net)(**{**fields(net), "script_arguments": ("--width", "3")})
    assert states.opened(SCRIPTS / "net.py", "net.Net", other)[1] == f"{kept.name} is stale: script arguments changed"
    sequence = BuildSequence(path="stages.py", sha256="0" * 64, stages=("export",))
    states.write(states.opened(SCRIPTS / "net.py", "net.Net", type(net)(**{**fields(net), "sequence": sequence}))[0])
    assert states.opened(SCRIPTS / "net.py", "net.Net", net)[1] == f"{kept.name} is stale: sequence changed"
    states.write(kept)


def test_a_state_that_names_another_folder_deletes_nothing_there(measured, cache, tmp_path, monkeypatch):
    """The cache may be another user's, and folders are deleted by the names of states."""
    name = next(name for name in states.all_states()[0] if name.startswith("net_"))
    others = tmp_path / "others"
    others.mkdir()
    monkeypatch.setenv("BENCHHOUSE_CACHE_DIR", str(tmp_path / "cache"))
    folder = states.states_folder() / name
    shutil.copytree(cache / "scripts" / name, folder)
    written = (folder / states.STATE).read_text()
    (folder / states.STATE).write_text(written.replace(f"name: {name}", "name: ../../others", 1))
    assert cli.main(["cache", "delete", "--all", "--yes"]) == 0
    assert others.is_dir()
    assert not folder.exists(), "it is deleted as one that cannot be read"


def test_a_state_shows_control_characters_as_escapes(measured):
    state = next(iter(states.all_states()[0].values()))
    text = states.state_text(replace(state, model_id="net\x1b[2J", script="a\nb.py"))
    assert "\x1b" not in text
    assert "\na" not in text
    assert "model       net\\x1b[2J" in text


def fields(record):
    """The fields of a record by name."""
    return {name: getattr(record, name) for name in type(record).__dataclass_fields__}


def test_code_compiled_by_launches_is_a_build_of_the_model(measured, found, cache):
    key = BuildKey(kind="inductor", parts={"model_id": "net.Net"})
    store = BuildStore()
    (store.empty_folder(key) / "code.py").write_text("x = 1")
    store.keep(key, build_s=2.5, facts={"graphs": 1})
    net = found("net")
    workload = net.workload(net.modules[0])
    run = make_run(runtime="compiled", model_id=workload.model_id)
    plan = SimpleNamespace(cell=run.cell)
    launches = [{"status": "failed"}, {"verified": {"made_build": f"inductor/{key.digest}"}}]
    result = replace(run.results[0], extra={"launches": launches})
    state, _ = states.opened(SCRIPTS / "net.py", "net.Net", net.modules[0])
    engine = states.with_run(state, plan, replace(run, results=(result,))).engines[-1]
    assert (engine.runtime, engine.kind, engine.digests) == ("compiled", "inductor", (key.digest,))
    assert (engine.build_s, engine.size_bytes) == (2.5, 5)
    elsewhere = replace(result, extra={"launches": [{"verified": {"made_build": f"inductor/{'0' * 32}"}}]})
    engine = states.with_run(state, plan, replace(run, results=(elsewhere,))).engines[-1]
    assert (engine.digests, engine.build_s) == (("0" * 32,), None)
    outside = replace(result, extra={"launches": [{"verified": {"made_build": "../../etc"}}]})
    assert states.with_run(state, plan, replace(run, results=(outside,))).engines[-1].kind is None


def test_loaded_plans_run_no_script(found, tmp_path):
    class Plan:
        class cell:  # noqa: N801 - stands in for a plan's cell
            workload = found("net").workload(found("net").modules[0])
            runtime, runtime_mode = "eager", {}

            class device:  # noqa: N801
                type = "cpu"

    refusal = r"would run the code in .*, so it was not started: if you trust the code, add --scripts with its folder"
    with pytest.raises(UsageError, match=refusal):
        check_loaded_plan(Plan, {}, "RUN.partial.jsonl")
    with pytest.raises(UsageError, match=refusal):
        check_loaded_plan(Plan, {"scripts": str(tmp_path)}, "an order")
    check_loaded_plan(Plan, {"scripts": str(SCRIPTS)}, "an order")


@pytest.mark.parametrize("runtime", ["ort", "eager"])
def test_a_module_is_measured_on_a_runtime_in_this_process(cache, runtime):
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()).train()
    run = benchmark_model(
        *(module, torch.randn(4, 8)), device="x86", runtime=runtime, profile="quick", iterations=5, warmup_iterations=1
    )
    (result,) = run.results
    assert (run.status, run.error) == ("ok", None)
    assert run.cell.runtime == runtime_named(runtime)
    performance = run.performance
    assert performance == result.performance
    assert performance.mean_latency == result.metrics["latency_mean_ms"] > 0
    assert (performance.latency_units, performance.throughput_units) == ("milliseconds", "items per second")
    assert performance.throughput == result.metrics["throughput_samples_per_sec"] > 0
    assert module.training
    assert result.metrics.get("output_error", 0.0) < 1e-5
    if runtime == "ort":
        assert run.preparation.build["exporter"] == "torch.onnx"
        assert "output_error" in result.metrics


def test_build_only_makes_the_build_and_measures_nothing(cache):
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())
    run = benchmark_model(module, torch.randn(4, 8), device="cpu", runtime="ort", build_only=True)
    assert (run.status, run.results[0].error) == ("skipped", "build_only: not measured")
    assert BuildStore().find_digest("onnx", str(run.preparation.build["digest"])) is not None
    assert run.performance.mean_latency is None


SEQUENCE = """
import onnx

def stamp(path):
    model = onnx.load(path, load_external_data=False)
    model.doc_string = "stamped"
    onnx.save(model, path)

def get_sequence():
    return ["export", "optimize", ("stamp", stamp)]
"""


def test_custom_sequences_build_the_measured_model(cache, tmp_path):
    import onnx

    (tmp_path / "stages.py").write_text(SEQUENCE)
    torch.manual_seed(0)
    module = torch.nn.Linear(8, 8)
    sequence = tmp_path / "stages.py"
    run = benchmark_model(module, torch.randn(4, 8), runtime="ort", build_only=True, sequence=sequence)
    folder = BuildStore().root / "onnx" / str(run.preparation.build["digest"])
    assert onnx.load(folder / "model.onnx").doc_string == "stamped"
    assert run.preparation.build["agreement"]["relative_l2"] < 1e-5
    assert run.cell.workload.config["sequence"]["stages"] == ["export", "optimise", "stamp"]
    with pytest.raises(UnsupportedError, match="sequence: runtime eager uses no builds"):
        benchmark_model(module, torch.randn(4, 8), sequence=sequence, runtime="eager")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"expected a function get_sequence\(\)"),
        ("def get_sequence(): return 'export'", "must return a list of stages: got 'export'"),
        ("def get_sequence(): return ['optimise']", "the first stage must be 'export', only once: got optimise"),
        ("def get_sequence(): return ['export', 'fly']", r"or a pair \(name, function\): got 'fly'"),
        (
            "def get_sequence(): return ['export', 'float16', 'optimise']",
            "only the last stage may be one of float16, quantise",
        ),
        ("1 / 0", "ZeroDivisionError: division by zero"),
    ],
)
def test_invalid_sequence_files_are_errors(tmp_path, text, message):
    (tmp_path / "stages.py").write_text(text)
    with pytest.raises(UsageError, match=message):
        read_sequence(tmp_path / "stages.py")


def test_the_last_stage_of_a_sequence_is_the_precision(tmp_path):
    (tmp_path / "stages.py").write_text("def get_sequence(): return ('export', 'quantize')")
    assert read_sequence(tmp_path / "stages.py").precision == "int8"


def test_a_module_without_tensor_inputs_has_no_graph(cache, tmp_path):
    script = tmp_path / "constant.py"
    script.write_text(
        "import torch\nclass One(torch.nn.Module):\n    def forward(self, size):\n"
        "        return torch.ones(size)\nOne()(3)"
    )
    analysis = analysed(ScriptRequest(path=str(script)))
    (module,) = analysis.modules
    reason = PLUGIN.recipe(analysis.workload(module))
    assert reason == "One was called without tensors: its graph would be a constant"
    assert module.calls[0].signature == {"size": "3"}


def test_a_script_that_measures_itself_does_not_start_itself_again(tmp_path, capfd):
    script = tmp_path / "itself.py"
    lines = ("import torch", "from benchmarking import benchmark_script", "torch.nn.Linear(4, 4)(torch.ones(2, 4))")
    script.write_text("\n".join([*lines, "assert not benchmark_script(__file__, devices='null').runs"]))
    analysis = analysed(ScriptRequest(path=str(script)))
    assert ([module.class_name for module in analysis.modules], analysis.error) == (["Linear"], None)
    assert "itself.py is being measured: benchmark_script does nothing in it" in capfd.readouterr().err


def test_scripts_are_measured_from_python_despite_failures(cache, tmp_path, monkeypatch):
    monkeypatch.setattr(script_models, "analyse", lambda request, log, limit_s: analysed(request))  # in this process
    script, hopeless = tmp_path / "two words.py", tmp_path / "hopeless.py"
    script.write_text("import sys, torch\nassert sys.argv[1:] == ['a b']\ntorch.nn.Linear(8, 8)(torch.ones(3, 8))")
    hopeless.write_text("import sys\nsys.exit('no data')")
    report = benchmark_script(
        [hopeless, script], script_args="'a b'", devices="null", launches=1, iterations=4, warmup_iterations=1
    )
    assert report.failures == ("hopeless.py: it ended: no data",)
    assert [one.error for one in report.scripts] == ["it ended: no data", None]
    (run,) = report.runs
    assert (run.status, run.cell.runtime, run.cell.subject) == ("ok", "null", "two words.Linear")
    assert run.performance.mean_latency == run.results[0].metrics["latency_mean_ms"]
    readable, _ = states.all_states()
    assert [state.script for name, state in readable.items() if name.startswith("two_words_")] == [str(script)]


def test_remote_machines_measure_scripts_and_model_ids_only():
    with pytest.raises(UsageError, match="--backend remote requires --remote-host"):
        benchmark_script("net.py", backend="remote")
    with pytest.raises(UsageError, match="analyze_only, build_only and sequence work on this machine only"):
        benchmark_script("net.py", use_slurm=True, analyze_only=True)
    with pytest.raises(UsageError, match="a module of this process works on this machine only"):
        benchmark_model(torch.nn.Linear(2, 2), torch.ones(1, 2), backend="remote", host="lab")


def test_targets_are_scripts_hashes_and_folders(monkeypatch, tmp_path):
    monkeypatch.chdir(SCRIPTS)
    (one,) = targets(["net.py::ABC,d5"], None, everything=False)
    assert (one.path, one.hashes) == (SCRIPTS / "net.py", ("abc", "d5"))
    (one,) = targets(["net.py::abc", "net.py::d5,abc"], None, everything=False)
    assert one.hashes == ("abc", "d5")
    (one,) = targets(["net.py::abc", "net.py"], None, everything=False)
    assert one.hashes == (), "all of its models are asked for"
    every = targets(["net.py::abc"], str(SCRIPTS), everything=True)
    assert next(target.path.name for target in every) == "net.py"
    assert len(every) == len(list(SCRIPTS.glob("*.py")))
    assert len(targets([], None, everything=True)) == len(every)
    for words, folder, everything, message in (
        ([], None, False, "no script to measure: give a script"),
        (["missing.py"], None, False, "missing.py: no such script"),
        ([], str(tmp_path), True, "no script"),
        ([], "nowhere", False, "--search-dir nowhere: no such folder"),
    ):
        with pytest.raises(UsageError, match=message):
            targets(words, folder, everything=everything)


def test_scripts_with_one_name_in_several_folders_have_logs_of_their_own(monkeypatch, tmp_path):
    logs = []

    def analyse(request, log, limit_s):
        logs.append(log.name)
        return Analysis(request=request)

    monkeypatch.setattr(script_models, "analyse", analyse)
    scripts = [script_models.Target(path=tmp_path / name / "net.py") for name in ("a", "b", "c")]
    asked = script_models.analyse_each(script_models.Models(), scripts, (), max_depth=0, limit_s=None, say=print)
    assert len(list(asked)) == 3
    assert logs == ["net.log", "net-2.log", "net-3.log"]


def test_names_of_other_tools_are_aliases():
    assert [device_named(name) for name in ("x86", "nvidia:1", "cpu", "auto")] == ["cpu", "cuda:1", "cpu", "auto"]
    assert [runtime_named(name) for name in ("ort", "TRT", "pytorch")] == ["onnxruntime", "tensorrt", "eager"]
    with pytest.raises(UsageError, match="unknown runtime 'otr'"):
        runtime_named("otr")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("--width,16", ["--width", "16"]),
        ("4,abc", ["4", "abc"]),
        ("--size=1,2,--width=64,-v,--depth,3", ["--size=1,2", "--width=64,-v", "--depth", "3"]),
        ("'1,2',--width,16", ["1,2", "--width", "16"]),
        ("--size 1,2 # x", ["--size", "1,2", "#", "x"]),
        ("", []),
    ],
)
def test_arguments_of_scripts_are_split_at_spaces_or_at_commas(text, words):
    assert list(script_models.split_arguments(text)) == words


def test_wrong_arguments_are_usage_errors(capsys, monkeypatch):
    monkeypatch.chdir(SCRIPTS)
    assert benchit.main(["net.py", "--script-args", "'open"]) == 2
    assert '--script-args "\'open": no closing quotation' in capsys.readouterr().err
    with pytest.raises(UsageError, match="no closing quotation"):
        benchmark_script("net.py", script_args="'open")
    with pytest.raises(UsageError, match="script_args: expected a text or a list of texts, found 5"):
        benchmark_script("net.py", script_args=5)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="max_depth takes a whole number from 0: got -1"):
        benchmark_script("net.py", max_depth=-1)
    assert benchit.main(["-d", "cache", "cache", "list"]) == 2
    assert "cache comes first, as in benchit cache list" in capsys.readouterr().err
    for words, meant in (("versoin", "version"), ("cahce list", "cache list"), ("benchmrk a.py", "benchmark SCRIPT")):
        assert benchit.main(words.split()) == 2
        assert f"did you mean benchit {meant}?" in capsys.readouterr().err
    assert benchit.main(["missing.py", "--script-args", "--width,64"]) == 2
    assert "missing.py: no such script" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--device", "x86,cud"], "unknown device 'cud'. Did you mean cuda"),
        (["--device", "auto", "--runtime", "pytorch,otr"], "unknown runtime 'otr'"),
        (["--sequence-file", "none.py"], "--sequence-file none.py: no such file"),
    ],
)
def test_invalid_flags_are_reported_before_the_script_runs(flags, message, cache, monkeypatch, capsys):
    monkeypatch.setattr(script_models, "analyse", lambda *arguments: pytest.fail("the script ran"))
    assert benchit.main([str(SCRIPTS / "net.py"), *flags]) == 2
    assert message in capsys.readouterr().err


def test_unknown_build_names_are_errors(cache, capsys):
    assert cli.main(["cache", "print", "none"]) == 2
    assert "no build of a script is named 'none'" in (stderr := capsys.readouterr().err)
    assert "no build has this digest either: see benchhouse cache list" in stderr
    assert cli.main(["cache", "print", ""]) == 2
    assert "argument BUILD: takes BUILD: got ''" in capsys.readouterr().err


def test_unreadable_states_are_listed_and_can_be_deleted(cache, capsys):
    folder = cache / "scripts" / "bad_12345678"
    folder.mkdir(parents=True)
    (folder / "state.yaml").write_text("x: [")
    assert cli.main(["cache", "list"]) == 0
    assert re.search(r"broken: cannot read .*bad_12345678/state\.yaml .* delete its folder", capsys.readouterr().out)
    assert cli.main(["cache", "list", "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)["broken_scripts"]) == ["bad_12345678"]
    assert cli.main(["cache", "delete", "bad_12345678"]) == 0
    assert (capsys.readouterr().out, folder.exists()) == ("bad_12345678 deleted\n", False)


def test_version_is_a_command(capsys):
    assert cli.main(["version"]) == 0
    assert capsys.readouterr().out.startswith("benchhouse ")


def test_a_model_that_cannot_run_does_not_take_the_others_of_its_script_with_it(found):
    analysis = found("two_models")
    first, second = analysis.modules
    chosen, modules = (first.number, second.number), (replace(first, dtype="float64"), second)
    models = script_models.Models(analyses=(replace(analysis, chosen=chosen, modules=modules),))
    request = Request(model_id="", settings=PROFILES["quick"])
    planned = models.plan(script_models.Selection(devices=("cpu",)), request, "session", print)
    models.check_planned()
    assert [plan.cell.workload.model_id for plan in planned] == ["two_models.Net-2"]
    (failure,) = models.failures
    assert failure.endswith("are float64, which is not supported: use --precision float32")


def test_what_a_cluster_continues_as_a_run_of_its_own_is_in_the_state_of_its_model(found):
    analysis = found("two_models")
    first = analysis.modules[0]
    second = replace(first, number=first.number + 1, hash="f" * len(first.hash))  # of one class, with the same inputs
    both = replace(analysis, modules=(first, second), chosen=(first.number, second.number))
    models = script_models.Models(analyses=(both,))
    request = Request(model_id="", settings=PROFILES["quick"])
    selection = script_models.Selection(devices=("cpu",), runtimes=("eager", "compiled"))
    plan = models.plan(selection, request, "session", print)[-1]
    run = make_run()
    models.keep(replace(run, cell=plan.cell))
    state = states.find(states.build_name(SCRIPTS / "two_models.py", second))
    assert {result.run_id for result in state.results} == {run.run_id}
    assert [engine.runtime for engine in state.engines] == ["compiled"]


def test_a_build_only_runtime_is_refused_unless_only_builds_are_requested(monkeypatch):
    monkeypatch.setattr(plugins.load("benchmarking.runtimes", "null"), "builds_only", True)
    request = Request(model_id="tiny-bert", device="null", settings=PROFILES["quick"])
    with pytest.raises(
        UnsupportedError, match="runtime null only makes builds and cannot run them: use benchhouse script"
    ):
        plan_cell(request, "session")
    assert plan_cell(replace(request, build_only=True), "session").cell.runtime == "null"


def test_runtime_options_need_a_runtime_that_declares_them(cache, capsys):
    flags = [str(SCRIPTS / "functional.py"), "--device", "null", "--compile-mode", "default", "--quiet"]
    assert benchit.main(flags) == 2
    assert "none of these runtimes has an option compile_mode: null has" in capsys.readouterr().err


def recorded(tmp_path, text):
    """The models of a script of this text."""
    return analysed(ScriptRequest(path=str(script_file(tmp_path, text))))


def operation_of(analysis, number=0, call=0, dtype=torch.float32):
    """The call of a model as it is measured, on the CPU."""
    module = analysis.modules[number]
    workload, point = analysis.workload(module), module.calls[call].point
    model, _ = PLUGIN.load(workload, dtype=dtype)
    inputs = {name: torch.from_numpy(array) for name, array in PLUGIN.inputs(workload, point, 0).items()}
    return PLUGIN.torch_operation(model, workload, point, inputs, {})


OF_SEVERAL_PRECISIONS = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = torch.nn.Linear(8, 8).bfloat16()
        self.head = torch.nn.Linear(8, 4)
        self.filter = torch.nn.Parameter(torch.ones(4, dtype=torch.complex64) * 1j)
        self.register_buffer("frequencies", torch.ones(8) / 3)
        self.register_buffer("offset", torch.zeros(8, dtype=torch.bfloat16))

    def forward(self, x):
        return self.head(self.trunk(x + self.offset).float() * self.frequencies) * self.filter

Net()(torch.ones(2, 8, dtype=torch.bfloat16))
"""


def test_a_precision_replaces_that_of_the_most_parameters_and_nothing_else(cache, tmp_path):
    analysis = recorded(tmp_path, OF_SEVERAL_PRECISIONS)
    (module,) = analysis.modules
    assert module.dtype == "bfloat16, float32, complex64"
    with pytest.raises(UnsupportedError, match="are bfloat16, float32, complex64: use --precision bfloat16, which"):
        script_models.precision_of(module)
    with pytest.raises(UnsupportedError, match="are int8, which is not supported: use --precision float32"):
        script_models.precision_of(replace(module, dtype="int8"))  # and not: quantize what already is
    for dtype in (torch.bfloat16, torch.float32):
        operation = operation_of(analysis, dtype=dtype)
        net = operation._model
        assert (net.trunk.weight.dtype, net.offset.dtype) == (dtype, dtype)
        assert (net.head.weight.dtype, net.frequencies.dtype, net.filter.dtype) == (
            torch.float32,
            torch.float32,
            torch.complex64,
        )
        assert operation.run(None).imag.any()


STATEFUL = """
import torch

class Cache:
    def __init__(self):
        self.layers = [torch.zeros(1, 2)]

class Net(torch.nn.Module):
    def forward(self, x, cache, seen):
        cache.layers = [torch.cat([cache.layers[0], x])]
        seen.append(1)
        return cache.layers[0].sum() * 0 + len(cache.layers[0]) + 10 * len(seen)

net, cache = Net(), Cache()
net(torch.ones(1, 2), cache, [])
net(torch.ones(3, 2), cache, [])
assert len(cache.layers[0]) == 5
"""


@pytest.mark.parametrize(("call", "rows"), [(0, 2), (1, 5)])
def test_each_call_starts_with_arguments_as_they_were_before_the_recorded_one(cache, tmp_path, call, rows):
    operation = operation_of(recorded(tmp_path, STATEFUL), call=call)
    assert operation.keeps_state
    for _ in range(3):
        operation.reset()
        assert float(operation.run(lambda name: None)) == rows + 10


LISTED = """
import torch
class Net(torch.nn.Module):
    def forward(self, x, past):
        past[1].append(x) if isinstance(past, tuple) else past.append(x)
        return x.sum() * 0 + len(past[1] if isinstance(past, tuple) else past)
Net()(torch.ones(1, 2), {past})
"""


@pytest.mark.parametrize("past", ["[torch.ones(1, 2)]", "(1, [torch.ones(1, 2)])"])
def test_a_list_of_tensors_that_a_call_appends_to_is_as_it_was_before_each_call(cache, tmp_path, past):
    operation = operation_of(recorded(tmp_path, LISTED.format(past=past)))
    assert operation.keeps_state
    for _ in range(3):
        operation.reset()
        assert float(operation.run(lambda name: None)) == 2


def test_nothing_is_restored_between_calls_that_cannot_change_their_arguments(cache, tmp_path):
    text = "import torch; torch.nn.Bilinear(2, 2, 2)(torch.ones(1, 2), input2=torch.ones(1, 2))"
    operation = operation_of(recorded(tmp_path, text))
    before = operation._positional
    operation.reset()
    assert (operation.keeps_state, operation._positional is before) == (False, True)


def test_a_call_that_fails_on_a_symbol_is_made_once_and_is_no_model_that_cannot_be_recorded(cache, tmp_path):
    text = """
import torch
class KerasTensor:
    pass
class Net(torch.nn.Module):
    calls = 0
    def forward(self, x):
        Net.calls += 1
        if isinstance(x, KerasTensor):
            raise TypeError("no symbols")
        return x
try:
    Net()(KerasTensor())
except TypeError:
    assert Net.calls == 1
torch.nn.Linear(2, 3)(torch.ones(1, 2))
"""
    analysis = recorded(tmp_path, text)
    assert ([module.class_name for module in analysis.modules], analysis.error) == (["Linear"], None)


def test_a_module_of_the_users_leaves_the_arguments_as_they_are():
    class Cache(list):
        pass

    class Net(torch.nn.Module):
        def forward(self, x, cache):
            cache.append(x)
            return x + len(cache)

    cache = Cache([1])
    run = benchmark_model(Net(), {"x": torch.ones(2, 2), "cache": cache}, profile="quick", iterations=4)
    assert (run.status, cache) == ("ok", [1])


def test_an_argument_of_a_class_whose_parts_have_no_names_in_torch_is_an_object():
    class Pair:
        def __init__(self, tensors):
            self.tensors = tensors

    class Net(torch.nn.Module):
        def forward(self, x, pair):
            pair.tensors.append(x)
            return x + len(pair.tensors)

    _pytree.register_pytree_node(Pair, lambda pair: (pair.tensors, None), lambda tensors, _: Pair(list(tensors)))
    pair = Pair([torch.ones(2, 2)])
    run = benchmark_model(Net(), {"x": torch.ones(2, 2), "pair": pair}, profile="quick", iterations=4)
    assert (run.status, len(pair.tensors)) == ("ok", 1)


def test_calls_that_differ_in_a_text_or_number_are_calls_of_their_own(cache, tmp_path):
    text = """
import torch
class Net(torch.nn.Module):
    def forward(self, x, mode, by=1.0):
        return x * by if mode == "fast" else x
net, x = Net(), torch.ones(2, 2)
net(x, "fast"); net(x, "slow"); net(x, "fast", by=0.5); net(x, mode="fast"); net(x, "s" * 50)
"""
    (module,) = recorded(tmp_path, text).modules
    kinds = [
        ({name: what for name, what in call.signature.items() if name != "x"}, call.executions) for call in module.calls
    ]
    (long, _) = kinds.pop()
    assert kinds == [({"mode": "'fast'"}, 2), ({"mode": "'slow'"}, 1), ({"mode": "'fast'", "by": "0.5"}, 1)]
    assert re.fullmatch(r"str of 50 characters \([0-9a-f]{8}\)", long["mode"])


def test_a_module_that_cannot_be_recorded_is_named_and_the_script_goes_on(cache, tmp_path):
    text = """
import torch
class Odd(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if function.__name__ in ("cpu", "view"):
            raise NotImplementedError("not here")
        return super().__torch_function__(function, types, args, kwargs or {})
odd = torch.nn.Linear(2, 2)
odd.weight = torch.nn.Parameter(torch.ones(2, 2).as_subclass(Odd))
odd(torch.ones(1, 2))
torch.nn.Linear(2, 2, device="meta")(torch.ones(1, 2, device="meta"))
torch.nn.Linear(2, 3)(torch.ones(1, 2))
"""
    analysis = recorded(tmp_path, text)
    assert [(module.class_name, module.parameter_count) for module in analysis.modules] == [("Linear", 9)]
    odd, meta = analysis.error.split("; ")
    assert odd == "Linear, called in line 11, cannot be measured: NotImplementedError: not here"
    assert meta.endswith(
        "line 12, cannot be measured: ValueError: its tensors are on the device meta, which has no values"
    )


QUANTIZED = """
import sys, torch, warnings
warnings.simplefilter("ignore")
torch.manual_seed({seed})
{model}
model({inputs})
"""
DYNAMIC = (
    "model = torch.ao.quantization.quantize_dynamic(torch.nn.Sequential(torch.nn.Linear(8, 8)), {torch.nn.Linear})"
)
PLAIN = "model = torch.nn.Sequential(); model.forward = lambda x: x @ model.w; model.w = torch.randn(8, 9)"
TORCHAO = (
    "from torchao.quantization import quantize_, Int8WeightOnlyConfig as Int8\n"
    "model = torch.nn.Sequential(torch.nn.Linear(8, 8)); quantize_(model, Int8())"
)


@pytest.mark.parametrize(("model", "count", "size"), [(DYNAMIC, 72, 108), (PLAIN, 72, 288), (TORCHAO, 72, None)])
def test_weights_that_are_no_plain_parameters_are_counted_and_hashed(cache, tmp_path, model, count, size):
    texts = [QUANTIZED.format(seed=seed, model=model, inputs="torch.ones(1, 8)") for seed in (0, 0, 5)]
    first, same, other = (recorded(tmp_path, text) for text in texts)
    assert first.error is None
    module = first.modules[-1]  # quantizing calls modules of its own
    assert (module.parameter_count, size or module.weights_bytes) == (count, module.weights_bytes)
    assert module.hash == same.modules[-1].hash != other.modules[-1].hash


def test_a_call_under_autocast_is_measured_under_it_and_has_no_graph(cache, tmp_path):
    text = """
import torch
net = torch.nn.Linear(4, 4)
net(torch.ones(2, 4))
with torch.autocast("cpu", dtype=torch.bfloat16):
    net(torch.ones(2, 4))
"""
    analysis = recorded(tmp_path, text)
    (module,) = analysis.modules
    assert [call.autocast for call in module.calls] == [None, "bfloat16"]
    assert [operation_of(analysis, call=call).run(None).dtype for call in (0, 1)] == [torch.float32, torch.bfloat16]
    assert "under torch.autocast" in PLUGIN.recipe(analysis.workload(module))
    (shown,) = script_models.outlines([replace(analysis, chosen=(1,))])
    assert "(1x, b2 call=2, autocast bfloat16)" in shown


def test_a_model_that_a_thread_calls_is_captured_at_the_recorded_calls(cache, tmp_path):
    text = """
import threading, torch
net = torch.nn.Linear(4, 4)
thread = threading.Thread(target=lambda: net(torch.ones(2, 4)))
thread.start(); thread.join()
net(torch.ones(3, 4))
"""
    script = script_file(tmp_path, text)
    found = capture_module(script, (), 0, number=1, calls=1)
    assert [dict(call.signature) for call in found.calls] == [{"input": "float32[2, 4]"}]


def test_the_unit_of_a_throughput_is_that_of_its_call(cache, tmp_path):
    text = "import torch\nnet = torch.nn.Conv2d(3, 8, 3)\nnet(torch.ones(3, 9, 9))\nnet(torch.ones(2, 3, 9, 9))\n"
    analysis = recorded(tmp_path, text)
    (module,) = analysis.modules
    workload = analysis.workload(module)
    assert [workload.counts_calls_at(call.point) for call in module.calls] == [True, False]
    assert not workload.counts_calls


def test_equal_calls_of_several_threads_are_one_kind(cache, tmp_path, monkeypatch):
    monkeypatch.setattr(shown_batch, "MAX_WAIT_S", 0.2)  # no other thread comes to the calls that show the batch
    text = """
import threading, torch
from concurrent.futures import ThreadPoolExecutor
class Net(torch.nn.Module):
    def forward(self, x):
        together.wait()
        return x
together, net = threading.Barrier(4), Net()
with ThreadPoolExecutor(4) as pool:
    list(pool.map(net, [torch.ones(2, 4)] * 8))
"""
    (module,) = recorded(tmp_path, text).modules
    assert [(dict(call.signature), call.executions) for call in module.calls] == [({"x": "float32[2, 4]"}, 8)]


def test_a_script_is_measured_with_as_many_threads_as_asked_for(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("BENCHHOUSE_CACHE_DIR", str(tmp_path / "cache"))
    words = [str(SCRIPTS / "functional.py"), "--device", "null", "--num-threads", "1", "--json", *QUICK]
    assert benchit.main(words) == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert run["cell"]["num_threads"] == 1


def test_a_script_that_ends_its_process_is_told_what_to_use(cache, tmp_path):
    text = "import os, torch\ntorch.nn.Linear(2, 2)(torch.ones(1, 2))\nos._exit(0)\n"
    error = analyse(ScriptRequest(path=str(script_file(tmp_path, text)))).error
    assert error.endswith("(os._exit), with what was found: use sys.exit")
