"""FLOPs and bytes of a call, each against a formula worked out by hand."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from functools import partial

import pytest
import torch

from benchmarking.builds.inventory import read_contents
from benchmarking.builds.store import BuildKey, BuildStore
from benchmarking.core.errors import OutOfMemoryError
from benchmarking.core.records import Point
from benchmarking.runtimes.support.torch import counting
from benchmarking.runtimes.support.torch.counting import (
    KIND,
    attention,
    cached_count,
    count_by_shapes,
    count_key,
    count_work,
    grouped_product,
    product,
)

F32 = 4


def values(call):
    found = count_work(call)
    assert found.missing == {}
    return found.values


def bytes_of(call):
    return count_work(call).values["bytes_accessed"]


def test_matrix_product_counts_two_flops_per_multiply_add_and_three_matrices():
    a, b = torch.ones(8, 4), torch.ones(4, 16)
    assert values(lambda: a @ b) == {
        "flops": 2 * 8 * 4 * 16,
        "flops_by_device": {"cpu": 2 * 8 * 4 * 16},
        "bytes_accessed": F32 * (8 * 4 + 4 * 16 + 8 * 16),
    }


def test_bytes_follow_the_dtype():
    a, b = torch.ones(8, 4, dtype=torch.bfloat16), torch.ones(4, 16, dtype=torch.bfloat16)
    assert values(lambda: a @ b)["bytes_accessed"] == 2 * (8 * 4 + 4 * 16 + 8 * 16)


def test_addition_reads_two_writes_one_and_has_no_flops():
    a, b = torch.ones(10, 10), torch.ones(10, 10)
    found = count_work(lambda: a + b)
    assert found.values == {"bytes_accessed": 3 * F32 * 100, "flops_by_device": {}}
    assert found.missing["flops"].startswith("not_applicable")


def test_an_operand_given_twice_is_read_once():
    a = torch.ones(10, 10)
    assert bytes_of(lambda: a * a) == 2 * F32 * 100


def test_in_place_operators_read_and_write_but_overwrites_only_write():
    a, b = torch.ones(10, 10), torch.ones(10, 10)
    assert bytes_of(lambda: a.add_(b)) == 3 * F32 * 100
    assert bytes_of(lambda: a.copy_(b)) == 2 * F32 * 100
    assert bytes_of(lambda: a.zero_()) == F32 * 100
    assert bytes_of(lambda: torch.add(a, b, out=torch.empty(10, 10))) == 3 * F32 * 100


def test_views_and_allocations_move_nothing():
    a = torch.ones(10, 10)

    def call():
        with torch.inference_mode():
            torch.empty(5, 5), torch.empty_like(a), a.new_empty(3), a.view(100)[3:].unsqueeze(0), a.t(), a.detach()

    found = count_work(call)
    assert found.values == {"flops_by_device": {}}
    assert found.missing["bytes_accessed"].startswith("not_applicable")


def test_a_broadcast_dimension_counts_once():
    a = torch.ones(10).expand(50, 10)
    assert bytes_of(lambda: a + 1) == F32 * (10 + 500)


def test_a_lookup_counts_the_selected_rows_rather_than_the_table():
    table, ids = torch.ones(1000, 8), torch.tensor([3, 5])
    assert bytes_of(lambda: torch.nn.functional.embedding(ids, table)) == 2 * 8 + 2 * F32 * 2 * 8


def test_in_place_scatter_writes_only_the_given_values():
    cache, ids, rows = torch.zeros(1000, 8), torch.tensor([3, 5]), torch.ones(2, 8)
    assert bytes_of(lambda: cache.index_copy_(0, ids, rows)) == 2 * 8 + 2 * F32 * 2 * 8


def test_an_in_place_scatter_that_adds_also_reads_only_the_part_that_it_writes():
    table, rows, ids = torch.zeros(1000, 8), torch.ones(2, 8), torch.tensor([3, 5])
    each, part, index = ids[:, None].expand(2, 8), 2 * 8 * F32, 2 * 8
    assert bytes_of(lambda: table.index_add_(0, ids, rows)) == index + part + 2 * part
    assert bytes_of(lambda: table.scatter_add_(0, each, rows)) == index + part + 2 * part
    assert bytes_of(lambda: table.scatter_reduce_(0, each, rows, "sum")) == index + part + 2 * part
    assert bytes_of(lambda: table.index_put_((ids,), rows, accumulate=True)) == index + part + 2 * part
    assert bytes_of(lambda: table.index_put_((ids,), rows)) == index + part + part
    assert bytes_of(lambda: table.index_put_((ids,), torch.tensor(0.0))) == index + F32 + part
    assert bytes_of(lambda: table.__setitem__((slice(None), ids), 0.0)) == index + F32 + 1000 * 2 * F32
    assert bytes_of(lambda: table.index_fill_(0, ids, 1.0)) == index + part
    assert bytes_of(lambda: table.scatter_(0, each, 1.0)) == index + part


def test_a_bag_of_embeddings_reads_only_its_rows():
    table, ids, offsets = torch.zeros(1000, 8), torch.tensor([3, 5]), torch.tensor([0])
    found = bytes_of(lambda: torch.nn.functional.embedding_bag(ids, table, offsets))
    read, written = 2 * 8 + 8 + 2 * 8 * F32, 8 * F32
    assert read + written <= found <= read + written + 100  # of the sizes and places of bags


@pytest.mark.parametrize("groups", [1, 4])
def test_a_convolution_counts_its_filter_at_every_output(groups):
    x = torch.ones(2, 4, 10, 10)
    convolution = torch.nn.Conv2d(4, 8, 3, padding=1, groups=groups, bias=False)
    with torch.no_grad():
        found = values(lambda: convolution(x))
    assert found["flops"] == 2 * (2 * 8 * 10 * 10) * (4 // groups * 3 * 3)
    assert found["bytes_accessed"] == F32 * (x.numel() + convolution.weight.numel() + 2 * 8 * 10 * 10)


@pytest.mark.parametrize("causal", [False, True])
def test_fused_attention_of_the_cpu_counts_scores_and_values(causal):
    q, k, v = (torch.ones(2, 3, length, 16) for length in (5, 7, 7))
    found = values(lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal))
    assert found["flops"] == 2 * (2 * 2 * 3 * 5 * 7 * 16)


def test_fused_attention_counts_like_explicit_attention():
    q, k, v = (torch.ones(2, 3, 6, 16) for _ in range(3))
    fused = values(lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v))
    written_out = values(lambda: (q @ k.transpose(-1, -2)).softmax(-1) @ v)
    assert fused["flops"] == written_out["flops"]
    assert fused["bytes_accessed"] < written_out["bytes_accessed"]


def test_attention_formula_takes_grouped_queries_and_values_of_another_width():
    assert attention((1, 8, 10, 64), (1, 2, 20, 64), (1, 2, 20, 32)) == 2 * 8 * 10 * 20 * (64 + 32)


def test_grouped_product_formula_counts_each_row_once_and_a_split_sum_once():
    assert grouped_product((10, 4), (3, 4, 6), (3,)) == 2 * 10 * 4 * 6
    assert grouped_product((5, 12), (12, 7), (3,)) == 2 * 5 * 12 * 7


def test_product_formula_takes_vectors():
    assert product((5,), (5,)) == 10
    assert product((3, 5), (5,)) == 30


@pytest.mark.parametrize("attn", ["sdpa", "eager", "flex_attention"])
def test_bert_flops_are_linear_layers_and_attention(attn):
    from transformers import BertConfig, BertModel

    batch, length, width, inner, layers = 2, 16, 32, 64, 2
    config = BertConfig(
        num_hidden_layers=layers,
        hidden_size=width,
        intermediate_size=inner,
        num_attention_heads=2,
        vocab_size=100,
        attn_implementation=attn,
    )
    model, ids = BertModel(config).eval(), torch.ones(batch, length, dtype=torch.long)

    def call():
        with torch.inference_mode():
            model(input_ids=ids)

    tokens = batch * length
    linear = 2 * tokens * layers * (4 * width * width + 2 * width * inner)
    scores = layers * 4 * batch * length * length * width
    pooler = 2 * batch * width * width
    assert values(call)["flops"] == linear + scores + pooler


def test_bert_base_flops_are_two_per_weight_and_token_plus_attention():
    from benchmarking.workloads.support.families import plugin_of
    from benchmarking.workloads.support.resolve import resolve

    workload, length = resolve("bert-base-uncased", weights="random"), 128
    with torch.device("meta"):
        model = plugin_of(workload).build(workload, dtype=torch.float32)
        ids = torch.ones(1, length, dtype=torch.long)

    def call():
        with torch.inference_mode():
            model(input_ids=ids)

    weights = 12 * (4 * 768 * 768 + 2 * 768 * 3072)  # 84,934,656 of the 109,482,240 parameters: no tables, no biases
    assert values(call)["flops"] == 2 * weights * length + 12 * 4 * length**2 * 768 + 2 * 768 * 768


def test_compiled_module_is_counted_uncompiled():
    model = torch.compile(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU()), backend="eager")
    x = torch.ones(3, 4)
    with torch.no_grad():
        model(x)
        assert values(lambda: model(x))["flops"] == 2 * 3 * 4 * 8


def test_torchs_compiler_is_not_imported_where_nothing_is_compiled(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch._dynamo", raising=False)
    counting._counter_class.cache_clear()  # torch would import it once for each class
    values(lambda: torch.ones(8, 4) @ torch.ones(4, 16))
    assert "torch._dynamo" not in sys.modules


def test_outer_dispatch_mode_still_sees_the_operators():
    from torch.utils._python_dispatch import TorchDispatchMode

    class Names(TorchDispatchMode):
        seen: list[str] = []  # noqa: RUF012

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.seen.append(func.name())
            return func(*args, **(kwargs or {}))

    a = torch.ones(4, 4)
    with Names():
        assert values(lambda: a @ a)["flops"] == 2 * 4 * 4 * 4
    assert "aten::mm" in Names.seen


def test_a_foreign_kernel_leaves_flops_missing_with_its_name_and_bytes_counted():
    library = torch.library.Library("benchhouse_test", "DEF")
    library.define("scan(Tensor x) -> Tensor")
    library.impl("scan", lambda x: x * 2, "CompositeExplicitAutograd")
    a = torch.ones(4, 4)

    def call():
        torch.ops.benchhouse_test.scan(a @ a)

    found = count_work(call)
    assert found.missing == {
        "flops": "not_supported: operators without a FLOP count: benchhouse_test::scan (no formula)"
    }
    assert found.values["bytes_accessed"] == F32 * (2 * 16 + 2 * 16)


def test_flops_of_torchs_fused_layer_are_missing_instead_of_too_small():
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()

    def call():
        with torch.inference_mode():
            layer(torch.ones(1, 4, 16))

    assert "aten::_transformer_encoder_layer_fwd (no formula)" in count_work(call).missing["flops"]


SPARSE = ["to_sparse", "to_sparse_csr", "to_sparse_csc"]


@pytest.mark.parametrize("to_sparse", SPARSE)
def test_a_sparse_matrix_has_the_bytes_of_its_indices_and_values_and_unknown_flops(to_sparse):
    sparse, dense = getattr(torch.eye(64), to_sparse)(), torch.ones(64, 8)
    found = count_work(lambda: sparse @ dense)
    assert found == count_by_shapes(lambda: sparse @ dense)
    assert found.missing == {"flops": "not_supported: operators without a FLOP count: aten::mm (sparse operands)"}
    indices = 2 * 64 if to_sparse == "to_sparse" else 65 + 64
    assert found.values["bytes_accessed"] == 8 * indices + F32 * (64 + 2 * 64 * 8)


def test_products_of_sparse_matrices_and_others_without_a_formula_leave_flops_missing():
    sparse, dense, batch = torch.eye(64).to_sparse(), torch.ones(64, 64), torch.ones(3, 64, 64)
    calls = {
        "aten::_sparse_addmm": lambda: torch.sparse.mm(sparse, dense),
        "aten::_sparse_sparse_matmul": lambda: torch.sparse.mm(sparse, sparse),
        "aten::addbmm_": lambda: torch.zeros(64, 64).addbmm_(batch, batch),
        "aten::conv_tbc": lambda: torch.conv_tbc(batch, torch.ones(2, 64, 64), torch.ones(64)),
    }
    for name, call in calls.items():
        assert f"{name} (no formula)" in count_work(call).missing["flops"]


@pytest.mark.parametrize(
    ("operator", "call"),
    [
        ("_linalg_solve_ex", torch.linalg.solve),
        ("linalg_inv_ex", lambda a, b: torch.linalg.inv(a)),
        ("linalg_cholesky_ex", lambda a, b: torch.linalg.cholesky(a)),
        ("_linalg_svd", lambda a, b: torch.linalg.svd(a)),
        ("_linalg_eigh", lambda a, b: torch.linalg.eigvalsh(a)),
        ("linalg_qr", lambda a, b: torch.linalg.qr(a)),
        ("linalg_lstsq", torch.linalg.lstsq),
        ("linalg_matrix_exp", lambda a, b: torch.matrix_exp(a)),
        ("linalg_solve_triangular", lambda a, b: torch.linalg.solve_triangular(a, b, upper=True)),
        ("_fft_r2c", lambda a, b: torch.fft.rfft(a)),
        ("_fft_c2r", lambda a, b: torch.fft.irfft(a)),
        ("_fft_c2c", lambda a, b: torch.fft.fft2(a)),
    ],
)
def test_a_factorization_or_transform_beside_a_product_leaves_flops_missing(operator, call):
    a, b = 4 * torch.eye(4), torch.ones(4, 2)
    missing = count_work(lambda: (a @ b, call(a, b))).missing
    assert f"aten::{operator} (no formula)" in missing["flops"]


def test_a_complex_product_counts_four_real_ones():
    a = torch.ones(8, 8, dtype=torch.complex64)
    assert values(lambda: a @ a)["flops"] == 4 * 2 * 8**3


def test_products_of_a_jagged_tensor_count_its_values():
    jagged = torch.nested.nested_tensor([torch.ones(3, 8), torch.ones(5, 8)], layout=torch.jagged)
    assert values(lambda: torch.nn.functional.linear(jagged, torch.ones(4, 8)))["flops"] == 2 * (3 + 5) * 8 * 4


def test_in_place_products_count_like_the_others():
    a, b, batch = torch.ones(8, 4), torch.ones(4, 16), (torch.ones(3, 8, 4), torch.ones(3, 4, 16))
    assert values(lambda: torch.zeros(8, 16).addmm_(a, b))["flops"] == 2 * 8 * 4 * 16
    assert values(lambda: torch.zeros(3, 8, 16).baddbmm_(*batch))["flops"] == 3 * 2 * 8 * 4 * 16
    assert values(lambda: torch.zeros(8).addmv_(a, torch.ones(4)))["flops"] == 2 * 8 * 4


def test_unobservable_call_has_a_reason():
    def call():
        raise NotImplementedError("no such kernel\nfor this mode")

    why = "failed: while counting: NotImplementedError: no such kernel for this mode"
    assert count_work(call).missing == {"flops": why, "bytes_accessed": why}


@pytest.mark.parametrize("error", [OutOfMemoryError("out"), MemoryError(), RuntimeError("CUDA out of memory. Tried")])
def test_out_of_memory_while_counting_stays_out_of_memory(error):
    def call():
        raise error

    with pytest.raises(OutOfMemoryError):
        count_work(call)


def test_importing_the_counter_imports_no_torch():
    code = "import sys, benchmarking.runtimes.support.torch.counting; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_generation_is_counted_over_its_whole_loop():
    from transformers import GPT2Config, GPT2LMHeadModel

    from benchmarking.core.records import Point
    from benchmarking.workloads.support.generation import DecoderGeneration

    width, layers, vocabulary, batch, prompt, new = 32, 2, 100, 2, 8, 3
    config = GPT2Config(n_embd=width, n_layer=layers, n_head=2, vocab_size=vocabulary, n_positions=16)
    point = Point(batch_size=batch, sequence_length=prompt, new_tokens=new)
    ids = torch.ones(batch, prompt, dtype=torch.long)
    operation = DecoderGeneration(GPT2LMHeadModel(config).eval(), point, {"input_ids": ids}, "dynamic")

    def call():
        with torch.inference_mode():
            operation.run(lambda name: None)

    tokens = prompt + new - 1  # the last token is not taken in any more
    linear = 2 * batch * tokens * layers * 12 * width**2
    scores = 4 * batch * layers * width * (prompt**2 + sum(range(prompt + 1, prompt + new)))
    heads = new * 2 * batch * width * vocabulary
    assert values(call)["flops"] == linear + scores + heads


KEY = BuildKey(kind=KIND, parts={"model_id": "m", "precision": "float32"})


@pytest.mark.parametrize(
    "look",
    [
        lambda found: [found.sum().item()],
        lambda found: found.tolist(),
        lambda found: found.numpy(),
        lambda found: found[found > 0],
        lambda found: found.nonzero(),
        lambda found: [row for row in found if row.sum() > 1],
    ],
    ids=["item", "tolist", "numpy", "mask", "nonzero", "branch"],
)
def test_call_that_reads_values_is_computed_while_counted(look):
    a, b, entered, resets = torch.eye(4), torch.ones(4, 8), [], []

    def call():
        with suppress(Exception):  # as a model may that tries one way after the other
            for _ in look(a @ b):
                a @ b

    with torch.no_grad():
        found = count_by_shapes(call, lambda: resets.append(1), entered.append)
        assert found == count_work(call)
    assert found.values["flops"] > 2 * 4 * 4 * 8
    assert resets == [1]
    assert entered.count("aten::mm") == found.values["flops"] / (2 * 4 * 4 * 8)


def test_call_that_reads_no_values_is_counted_by_shapes_without_computing():
    block = torch.nn.Sequential(
        torch.nn.Conv1d(8, 16, 3, bias=False), torch.nn.Flatten(0, 1), torch.nn.Linear(30, 6), torch.nn.LayerNorm(6)
    )
    x, outputs, entered, resets = torch.randn(2, 8, 32), [], [], []

    def call():
        query = block(x).reshape(2, 4, 4, 6)
        mixed = torch.nn.functional.scaled_dot_product_attention(query, query, query)
        outputs.append(mixed.transpose(1, 2).reshape(2, 96) @ torch.ones(96, 3))

    with torch.inference_mode():
        found = count_by_shapes(call, lambda: resets.append(1), entered.append)
        names: list[str] = []
        assert found == count_work(call, on_dispatch=names.append)
    assert found.missing == {}
    assert (entered, resets) == (names, [])
    assert not outputs[0].any()
    assert outputs[1].any()


def product_of_ones():
    return torch.ones(8, 4) @ torch.ones(4, 16)


def ones_counted():
    return count_work(product_of_ones)


def never():
    raise AssertionError("it was counted again")


def test_counts_are_cached_across_processes(tmp_path):
    store = BuildStore(tmp_path)
    found = cached_count(KEY, ones_counted, store)
    assert found.values["flops"] == 2 * 8 * 4 * 16
    assert cached_count(KEY, never, store) == found
    (kept,) = read_contents(store.root).builds
    assert (kept.build.kind, kept.model_id, kept.precision) == ("flops", "m", "float32")
    other = BuildKey(kind=KIND, parts={**KEY.parts, "precision": "bfloat16"})
    assert (
        cached_count(other, lambda: count_work(lambda: torch.ones(2, 2) @ torch.ones(2, 2)), store).values["flops"]
        == 16
    )


@pytest.mark.parametrize(
    "damage",
    [
        "",
        "{",
        "[]",
        lambda text: text.replace('"flops":1024', '"flops":"many"'),
        lambda text: text.replace('"flops":1024', '"flops":-1024'),
        lambda text: text.replace('"flops":1024', '"flops":true'),
        lambda text: text.replace('"bytes_accessed"', '"bytes_guessed"'),
    ],
)
def test_damaged_count_is_replaced(tmp_path, damage):
    store = BuildStore(tmp_path)
    found = cached_count(KEY, ones_counted, store)
    record = store.folder(KEY) / "build.json"
    text = record.read_text()
    broken = damage if isinstance(damage, str) else damage(text)
    assert broken != text
    record.write_text(broken)
    assert cached_count(KEY, ones_counted, store) == found
    assert cached_count(KEY, never, store) == found


def test_failed_count_is_not_cached(tmp_path):
    store = BuildStore(tmp_path)
    assert cached_count(KEY, partial(count_work, never), store).missing["flops"].startswith("failed: while counting")
    assert store.find(KEY) is None
    assert cached_count(KEY, ones_counted, store).values["flops"] == 2 * 8 * 4 * 16


def test_counts_survive_an_unwritable_cache(tmp_path):
    (tmp_path / "builds").write_text("a file where the folder should be")
    assert cached_count(KEY, ones_counted, BuildStore(tmp_path)).values["flops"] == 2 * 8 * 4 * 16


def test_processes_that_count_at_the_same_time_agree(tmp_path):
    script = (
        "import multiprocessing, sys, torch\n"
        "from pathlib import Path\n"
        "from benchmarking.builds.store import BuildKey, BuildStore\n"
        "from benchmarking.runtimes.support.torch.counting import cached_count, count_work\n"
        "context = multiprocessing.get_context('fork')\n"  # torch is imported once
        "together = context.Barrier(3)\n"
        "def sizes(_):\n"
        "    together.wait(100)\n"
        "    store, found = BuildStore(Path(sys.argv[1])), set()\n"
        "    for n in range(20):\n"
        "        key = BuildKey(kind='flops', parts={'n': n % 4})\n"
        "        one = cached_count(key, lambda: count_work(lambda: torch.ones(2, 4) @ torch.ones(4, 8)), store)\n"
        "        found.add(one.values['flops'])\n"
        "    return found\n"
        "with context.Pool(3) as pool:\n"
        "    print(pool.map(sizes, range(3), chunksize=1))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.strip() == "[{128}, {128}, {128}]"
    contents = read_contents(BuildStore(tmp_path).root)
    assert (len(contents.builds), contents.broken) == (4, ())


def test_count_key_covers_model_inputs_device_precision_and_versions(make_run):
    import numpy as np

    cell = make_run().cell
    point = Point(batch_size=1, sequence_length=32)
    arrays = {"input_ids": np.zeros((1, 32), dtype=np.int64)}
    key = count_key(cell, point, arrays)
    assert count_key(cell, replace(point, concurrency=4), arrays) == key
    assert key.parts["versions"]["torch"] == torch.__version__
    others = [
        count_key(replace(cell, precision="bfloat16"), point, arrays),
        count_key(replace(cell, runtime_mode={"attention": "eager"}), point, arrays),
        count_key(replace(cell, workload=replace(cell.workload, config_hash="other")), point, arrays),
        count_key(replace(cell, device=replace(cell.device, name="another model")), point, arrays),
        count_key(cell, replace(point, sequence_length=64), arrays),
        count_key(cell, point, {"input_ids": np.zeros((1, 33), dtype=np.int64)}),
    ]
    assert len({key.digest, *(other.digest for other in others)}) == 7
