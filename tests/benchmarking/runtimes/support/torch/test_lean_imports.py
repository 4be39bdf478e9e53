"""What importing a model's code leaves out, and that all of it is there when it is called."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

LEFT_OUT = ("torch._dynamo", "torch.distributed.tensor", "scipy.optimize", "torchao", "sympy")

SCRIPT = """
import json, sys
from unittest.mock import patch

import torch
from transformers.utils import import_utils
from benchmarking.runtimes.support.torch import lean_imports
from benchmarking.runtimes.eager import PLUGIN

scan = import_utils.create_import_structure_from_path
own_define = import_utils.define_import_structure
with patch.object(import_utils, "create_import_structure_from_path", side_effect=scan) as scans:
    PLUGIN.import_libraries()
models = sys.modules["transformers.models"]
from benchmarking.workloads.support.resolve import resolve
from benchmarking.workloads.support.transformers_models import model_class

own = {name: getattr(torch.compiler, name) for name in lean_imports._MARKS}
with lean_imports.lean_imports():
    bert = model_class(resolve("tiny-bert"))
answer = {
    "imported": [name for name in sys.argv[1:] if name in sys.modules],
    "restored": all(getattr(torch.compiler, name) is each for name, each in own.items()),
    "distributed": torch.distributed.is_available(),
}
from transformers.generation.continuous_batching import PagedAttentionCache
from transformers.loss import loss_for_object_detection as loss
from transformers.masking_utils import TransformGetItemToIndex

answer["scanned"] = [str(call.args[0]) for call in scans.mock_calls if str(call.args[0]) == models.__file__]
own_define.cache_clear()
answer["classes"] = models._class_to_module == type(models)(
    "transformers.models", models.__file__, own_define(models.__file__), module_spec=models.__spec__
)._class_to_module
answer["defines"] = import_utils.define_import_structure is own_define
answer["assigned"] = [each.tolist() for each in loss.linear_sum_assignment([[2, 1], [1, 2]])]
marked = list(lean_imports._ALLOWED_IN_GRAPH)
answer["function"] = type(TransformGetItemToIndex()).__module__
lean_imports.complete()
from torch._dynamo import trace_rules

answer["allowed"] = [id(each) in trace_rules._allowed_callable_ids for each in marked]
answer["waiting"] = len(lean_imports._ALLOWED_IN_GRAPH)
with lean_imports.lean_imports():
    answer["second"] = isinstance(sys.modules["torch._dynamo"], lean_imports._Stub)
import transformers.masking_utils

answer["class"] = isinstance(transformers.masking_utils.TransformGetItemToIndex, type)
print(json.dumps(answer))
"""


def test_a_models_code_is_imported_without_what_no_call_needs_and_with_all_that_is_called():
    pytest.importorskip("scipy")
    command = (sys.executable, "-c", SCRIPT, *LEFT_OUT)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    answer = json.loads(done.stdout.splitlines()[-1])
    assert answer.pop("allowed").count(True) >= 1
    assert answer == {
        "imported": [],
        "restored": True,
        "distributed": True,
        "scanned": [],
        "classes": True,
        "defines": True,
        "assigned": [[0, 1], [1, 0]],
        "function": "torch._dynamo._trace_wrapped_higher_order_op",
        "waiting": 0,
        "second": False,
        "class": True,
    }
