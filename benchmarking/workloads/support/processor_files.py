"""The files of a model's tokenizer and processors: which there are, and reading them. Data only: no code, no pickle."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarking.core.contracts import Modality
from benchmarking.core.errors import BenchhouseError
from benchmarking.core.records import Family
from benchmarking.workloads.support.families import family_named

TOKENIZER_FILES = (
    "tokenizer.json",
    "vocab.txt",
    "vocab.json",
    "spiece.model",
    "tokenizer.model",
    "sentencepiece.bpe.model",
)
"""Any of these holds a vocabulary. Everything else about a tokenizer is optional beside them."""
PROCESSOR_FILES = ("preprocessor_config.json", "processor_config.json")

HUB_FILES = (
    *TOKENIZER_FILES,
    *PROCESSOR_FILES,
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "merges.txt",
)
"""What is fetched with a configuration."""

NAMES: Mapping[Modality, str] = {"text": "tokenizer", "image": "image_processor", "audio": "feature_extractor"}
"""What transformers calls each."""


def kinds_of(family: Family | None) -> tuple[Modality, ...]:
    """The kinds of input that a family's models take, and so the processors they may have."""
    plugin = family_named(family)
    return () if plugin is None else plugin.modalities


def present(folder: Path, kind: Modality) -> bool:
    """Whether the folder holds a tokenizer or processor of this kind."""
    return any((folder / name).is_file() for name in (TOKENIZER_FILES if kind == "text" else PROCESSOR_FILES))


def has_processors(folder: Path) -> bool:
    """Whether the folder holds a tokenizer or processor of any kind."""
    return any((folder / name).is_file() for name in (*TOKENIZER_FILES, *PROCESSOR_FILES))


def load(folder: Path, kind: Modality) -> Any:
    """transformers' tokenizer or processor. Raises BenchhouseError for files that cannot be used, ImportError for a
    package that they need."""
    import transformers

    automatic = {
        "text": transformers.AutoTokenizer,
        "image": transformers.AutoImageProcessor,
        "audio": transformers.AutoFeatureExtractor,
    }[kind]
    try:
        return automatic.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
    except ImportError:
        raise
    except Exception as error:  # by no closer name: the tokenizers library raises bare Exception for a broken file
        raise BenchhouseError(
            f"the {NAMES[kind].replace('_', ' ')} in {folder} does not load: {type(error).__name__}: "
            f"{first_line(error)}. Fetch its files again, or take them out to run on seeded inputs"
        ) from error


def first_line(error: Exception) -> str:
    """The first line of what an error says."""
    return str(error).strip().split("\n")[0]
