"""A user's module as a session."""

from __future__ import annotations

import pytest
import torch

from benchmarking.core.errors import UsageError
from benchmarking.core.records import Point
from benchmarking.runtimes.support.torch.torch_session import ModuleSession, module_workload


def ignore(event):
    return None


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 2)
        self.dropout = torch.nn.Dropout(0.5)

    def forward(self, x, scale=1.0):
        return self.dropout(self.linear(x)) * scale


@pytest.mark.parametrize(
    "inputs",
    [torch.ones(3, 4), (torch.ones(3, 4),), [torch.ones(3, 4), 1.0], {"x": torch.ones(3, 4)}],
    ids=["tensor", "tuple", "list", "mapping"],
)
def test_inputs_are_passed_as_positional_or_named_arguments(inputs):
    net = Net()
    session = ModuleSession(net, inputs)
    operation = session.operation(session.point())
    assert operation.items_per_call == 3
    with torch.no_grad():
        expected = net.linear(torch.ones(3, 4))
    torch.testing.assert_close(operation.run(ignore), expected, rtol=0, atol=0)
    assert operation.arrays(operation.run(ignore))["output"].shape == (3, 2)


def test_module_is_in_eval_mode_until_the_session_closes():
    net = Net()
    session = ModuleSession(net, torch.ones(1, 4))
    assert not net.training
    session.close()
    assert net.training
    net.eval()
    ModuleSession(net, torch.ones(1, 4)).close()
    assert not net.training


def test_a_frozen_part_of_a_training_module_stays_frozen():
    net = Net()
    net.dropout.eval()
    ModuleSession(net, torch.ones(1, 4)).close()
    assert (net.training, net.linear.training, net.dropout.training) == (True, True, False)


def test_frozen_torchscript_in_a_module_has_no_mode_to_restore():
    frozen = torch.jit.freeze(torch.jit.script(torch.nn.Linear(4, 4).eval()))
    net = torch.nn.Sequential(frozen)
    ModuleSession(net, torch.ones(1, 4)).close()
    assert net.training


def test_weight_and_class_are_read_from_the_module():
    session = ModuleSession(Net(), torch.ones(1, 4))
    assert (session.weights_bytes, session.parameter_count) == (40, 10)
    assert session.verified["model_class"] == "Net"
    assert session.verified["parameter_devices"] == ["cpu"]
    assert session.verified["num_threads"] == torch.get_num_threads()


@pytest.mark.parametrize("layout", ["coo", "csr", "csc"])
def test_a_sparse_buffer_counts_with_its_indices_and_values(layout):
    begins, numbers, ones = torch.arange(17), torch.arange(16), torch.ones(16)
    if layout == "coo":
        adjacency, indices = torch.sparse_coo_tensor(torch.stack([numbers, numbers]), ones), 2 * 16
    else:
        adjacency, indices = getattr(torch, f"sparse_{layout}_tensor")(begins, numbers, ones), 17 + 16

    class Graph(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(4, 2)
            self.register_buffer("adjacency", adjacency)

        def forward(self, x):
            return self.adjacency @ self.linear(x)

    session = ModuleSession(Graph(), torch.ones(16, 4))
    assert session.weights_bytes == 40 + 8 * indices + 4 * 16
    operation = session.operation(session.point())
    assert operation.problem(operation.run(ignore)) is None


def test_nan_in_the_output_is_a_problem():
    session = ModuleSession(torch.nn.Identity(), torch.tensor([[1.0, float("nan")]]))
    operation = session.operation(Point(batch_size=1))
    assert operation.problem(operation.run(ignore)) == "NaN or Inf in output: 1 of 2 values"


OUTPUTS = {
    "sparse": lambda x: x.to_sparse(),
    "sparse rows": lambda x: x.to_sparse_csr(),
    "oneDNN": lambda x: x.to_mkldnn(),
    "nested": lambda x: torch.nested.nested_tensor([x[0], x[1]]),
    "jagged": lambda x: torch.nested.nested_tensor([x[0], x[1, :1]], layout=torch.jagged),
    "8-bit floats": lambda x: x.to(torch.float8_e4m3fn),
    "complex": lambda x: torch.complex(torch.ones_like(x), x).conj(),
    "imaginary": lambda x: torch.complex(torch.ones_like(x), x).conj().imag,
}


@pytest.mark.parametrize("kind", OUTPUTS)
def test_tensors_of_every_kind_are_checked_and_compared(kind):
    class Gives(torch.nn.Module):
        def forward(self, x):
            return OUTPUTS[kind](x)

    def operation(last):
        return ModuleSession(Gives(), torch.tensor([[float(last), 2.0], [3.0, 4.0]])).operation(Point(batch_size=2))

    one, other, broken = operation(1), operation(1.5), operation("nan")
    assert one.problem(one.run(ignore)) is None
    assert "NaN or Inf in output: 1 of" in broken.problem(broken.run(ignore))
    (array,), (another,) = (each.arrays(each.run(ignore)).values() for each in (one, other))
    assert array.dtype == another.dtype == "float32"
    assert (array != another).sum() == 1


def test_quantized_outputs_are_what_their_integers_stand_for():
    class Gives(torch.nn.Module):
        def forward(self, x):
            return torch.quantize_per_tensor(x, 0.5, 0, torch.qint8)

    operation = ModuleSession(Gives(), torch.ones(2, 2)).operation(Point(batch_size=2))
    assert operation.problem(operation.run(ignore)) is None
    assert operation.arrays(operation.run(ignore))["output"].tolist() == [[1.0, 1.0], [1.0, 1.0]]


def test_an_output_without_tensors_has_nothing_to_check():
    class Says(torch.nn.Module):
        def forward(self, x):
            return "done"

    operation = ModuleSession(Says(), torch.ones(1, 1)).operation(Point(batch_size=1))
    assert operation.problem(operation.run(ignore)) is None
    assert operation.arrays(operation.run(ignore)) == {}


def test_point_of_another_batch_size_is_refused():
    with pytest.raises(UsageError, match="batch size 3, the point 4"):
        ModuleSession(Net(), torch.ones(3, 4)).operation(Point(batch_size=4))


def test_inputs_without_a_tensor_are_refused():
    with pytest.raises(UsageError, match="the inputs contain no tensor"):
        ModuleSession(Net(), {"x": 1}).point()


def test_token_ids_give_the_point_its_sequence_length():
    session = ModuleSession(torch.nn.Embedding(9, 4), torch.zeros(2, 7, dtype=torch.long))
    assert session.point() == Point(batch_size=2, sequence_length=7)
    assert ModuleSession(Net(), torch.ones(3, 4)).point() == Point(batch_size=3)


def test_workload_of_a_transformers_model_has_its_family():
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(n_embd=16, n_layer=1, n_head=2, vocab_size=50, n_positions=32))
    workload = module_workload(model, "mine")
    assert (workload.model_id, workload.family, workload.source) == ("mine", "decoder-only", "module")
    assert workload.parameter_count == sum(p.numel() for p in model.parameters())
    assert workload.config["n_embd"] == 16


def test_workload_of_any_other_module_has_no_family():
    workload = module_workload(Net())
    assert (workload.model_id, workload.family, workload.task) == ("Net", None, "feature-extraction")
    assert workload.weights == "given"
    assert workload.parameter_count == 10
