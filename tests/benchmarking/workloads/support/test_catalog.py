"""The catalog: names, aliases, and parameter counts that match the configurations."""

from __future__ import annotations

import pytest

from benchmarking.commands.listings import catalog_json, catalog_text
from benchmarking.core.errors import UsageError
from benchmarking.core.terminal import Page
from benchmarking.workloads.support import families
from benchmarking.workloads.support.families import family_of
from benchmarking.workloads.support.resolve import resolve

PUBLISHED = {
    "bert-base-uncased": 109_482_240,
    "bert-large-uncased": 335_141_888,
    "roberta-base": 124_645_632,
    "distilbert-base-uncased": 66_362_880,
    "microsoft/MiniLM-L12-H384-uncased": 33_360_000,
    "answerdotai/ModernBERT-base": 149_014_272,
    "gpt2": 124_439_808,
    "distilgpt2": 81_912_576,
    "gpt2-medium": 354_823_168,
    "facebook/opt-125m": 125_239_296,
    "Qwen/Qwen2.5-0.5B": 494_032_768,
    "HuggingFaceTB/SmolLM2-135M": 134_515_008,
    "TinyLlama/TinyLlama-1.1B-Chat-v1.0": 1_100_048_384,
    "meta-llama/Llama-3.2-1B": 1_235_814_400,
    "microsoft/phi-2": 2_779_683_840,
    "t5-small": 60_506_624,
    "google/flan-t5-base": 247_577_856,
    "facebook/bart-base": 139_420_416,
    "facebook/mbart-large-50": 610_879_488,
}
TINY = {"tiny-bert": 202_688, "tiny-gpt2": 198_400, "tiny-llama": 229_696, "tiny-t5": 230_400}


def test_text_families_hold_the_published_models_and_the_tiny_ones():
    text = ("encoder-only", "decoder-only", "encoder-decoder")
    entries = [entry for entry in families.catalog_entries() if family_of(entry.config, entry.name).name in text]
    assert {entry.name: entry.parameter_count for entry in entries} == PUBLISHED | TINY


@pytest.mark.parametrize("name", [entry.name for entry in families.catalog_entries()])
def test_parameter_count_matches_the_model_on_the_meta_device(name):
    import torch

    entry = families.catalog_entry(name)
    workload = resolve(name, weights="random")
    with torch.device("meta"):
        model = family_of(entry.config, name).build(workload, dtype=torch.float32)
    assert type(model).__name__ == entry.model_class
    assert sum(parameter.numel() for parameter in model.parameters()) == entry.parameter_count
    assert workload.parameter_count == entry.parameter_count
    assert not model.training


def test_parameter_count_is_absent_for_another_task():
    assert resolve("bert-base-uncased", weights="random", task="fill-mask").parameter_count is None


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("google-bert/bert-base-uncased", "bert-base-uncased"),
        ("openai-community/gpt2", "gpt2"),
        ("google-t5/t5-small", "t5-small"),
        ("FacebookAI/roberta-base", "roberta-base"),
        ("distilbert/distilbert-base-uncased", "distilbert-base-uncased"),
        ("ModernBERT-base", "answerdotai/ModernBERT-base"),
        ("Qwen2.5-0.5B", "Qwen/Qwen2.5-0.5B"),
        ("TinyLlama-1.1B", "TinyLlama/TinyLlama-1.1B-Chat-v1.0"),
        ("Llama-3.2-1B", "meta-llama/Llama-3.2-1B"),
        ("phi-2", "microsoft/phi-2"),
        ("mbart-large-50", "facebook/mbart-large-50"),
    ],
)
def test_aliases_are_the_same_model(alias, name):
    assert families.catalog_entry(alias) is families.catalog_entry(name)
    assert resolve(alias, weights="random").config_hash == resolve(name, weights="random").config_hash


def test_names_and_aliases_are_unique():
    assert len(set(families.catalog_names())) == len(families.catalog_names())


def test_unknown_name_is_not_found():
    assert families.catalog_entry("bert-base-uncase") is None


@pytest.mark.parametrize(
    ("name", "longest"),
    [
        ("bert-base-uncased", 512),
        ("roberta-base", 512),  # 514 positions, of which two lie before the first token's
        ("distilbert-base-uncased", 512),
        ("gpt2", 1024),
        ("facebook/opt-125m", 2048),
        ("facebook/bart-base", 1024),
        ("answerdotai/ModernBERT-base", 8192),
        ("Qwen/Qwen2.5-0.5B", 32768),
        ("TinyLlama/TinyLlama-1.1B-Chat-v1.0", 2048),
        ("meta-llama/Llama-3.2-1B", 131_072),
        ("microsoft/phi-2", 2048),
        ("facebook/mbart-large-50", 1024),
        ("t5-small", None),
        ("google/flan-t5-base", None),
    ],
)
def test_longest_sequence_is_the_published_one(name, longest):
    assert resolve(name, weights="random").max_sequence_length == longest


def test_listing_has_a_row_for_every_model():
    rows = {row["name"]: row for row in catalog_json()}
    assert list(rows) == [entry.name for entry in families.catalog_entries()]
    assert rows["t5-small"] == {
        "name": "t5-small",
        "aliases": ["google-t5/t5-small"],
        "family": "encoder-decoder",
        "task": "text2text-generation",
        "model_class": "T5ForConditionalGeneration",
        "parameter_count": 60_506_624,
        "float32_bytes": 242_026_496,
        "max_sequence_length": None,
        "axes": ["sequence_length", "new_tokens"],
    }


def test_listing_text_lines_up_under_its_headings():
    lines = catalog_text().splitlines()
    gpt2, vit = (next(line for line in lines if line.startswith(name)) for name in ("gpt2 ", "tiny-vit "))
    assert gpt2.split()[:8] == ["gpt2", "decoder-only", "text-generation", "124.4", "M", "498", "MB", "1024"]
    assert gpt2.endswith("  sequence length, new tokens")
    assert vit.endswith(" -  image size")
    assert lines[0].index("family") == gpt2.index("decoder-only")
    assert lines[0].index("further axes") == gpt2.index("sequence length") == vit.index("image size")


def test_listed_names_are_whole_at_100_columns():
    *lines, _ = catalog_text(Page(width=100)).splitlines()
    assert max(map(len, lines)) <= 100
    assert {line.split()[0] for line in lines if line} >= {entry.name for entry in families.catalog_entries()}


def test_an_unknown_choice_of_weights_is_refused_with_the_valid_ones():
    with pytest.raises(UsageError, match="auto, pretrained, random"):
        resolve("gpt2", weights="best")
