"""A model's weights in files for inference engines: a Hugging Face folder, and GGUF.

The folder is the input of the engines' converters. A catalog model has no tokenizer, but converters and engines need
one. It gets a vocabulary with one word per embedding, whose text names its id: `t17` is 17. Whether an engine returns
ids or text, the ids are known, and every token is complete text on its own.

GGUF files (llama.cpp's format) are made from a model's own weights, seeded or pretrained. The `gguf` package maps the
tensor names of each architecture. The other differences are handled here: the row order of Q and K, since llama.cpp
rotates adjacent pairs and transformers rotates halves; Gemma's norms, stored minus one; and layers with transposed
matrices. llama.cpp's convert_hf_to_gguf.py does the same, but is not part of any package.

Quantized types are made by llama.cpp's own function, which the installed library exports, in llama-quantize's mixtures.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from benchmarking.builds.store import BuildKey, Make, model_parts
from benchmarking.core.errors import BenchhouseError, UnsupportedError
from benchmarking.core.lazy_modules import np
from benchmarking.core.plugins import version_of
from benchmarking.core.records import Json, Precision, Workload
from benchmarking.graphs.bundle import ORIGIN, origin_text
from benchmarking.runtimes.support.engines.computed import rope_of
from benchmarking.workloads.support.gguf_file import FILE_TYPES, FLOAT_PRECISIONS, TYPES, precision_of, read_gguf
from benchmarking.workloads.support.processing import HUB_FILES, has_processor

CHECKPOINT_KIND = "checkpoint"
CHECKPOINT_VERSION = 2
"""Increased whenever the files saved for a model change."""
BEGIN, END = 0, 1
"""Ids of the begin and end tokens in the vocabulary. Calls ignore the end token."""


def token_text(token: int) -> str:
    """The text of a token in the vocabulary of ids."""
    return f"t{token}"


def token_of(text: str) -> int:
    """The token with a text in the vocabulary of ids. Raises ValueError for any other text."""
    if not text.startswith("t"):
        raise ValueError(f"{text!r} is not a token in the vocabulary of ids")
    return int(text[1:])


def vocabulary_size(workload: Workload) -> int:
    """The number of embeddings of the model."""
    return int(str(workload.config["vocab_size"])) if workload.vocab_size is None else workload.vocab_size


def torch_model(workload: Workload, precision: Precision = "float32") -> Any:
    """The model as runtime eager loads it, pretrained or seeded. Needs torch."""
    from benchmarking.runtimes.support.torch.model_loading import load_model

    return load_model(workload, precision, None)[0]


def checkpoint(workload: Workload, precision: Precision = "float32") -> tuple[BuildKey, Make]:
    """The key of a model's folder, and a function that creates it: config.json, safetensors and a tokenizer."""
    parts: dict[str, Json] = {
        **model_parts(workload),
        "precision": precision,
        "version": CHECKPOINT_VERSION,
        "versions": {name: version_of(name) for name in ("torch", "transformers")},
    }

    def make(folder: Path) -> Mapping[str, Json]:
        model = torch_model(workload, precision)
        model.config.eos_token_id, model.config.bos_token_id = END, BEGIN
        model.generation_config.eos_token_id, model.generation_config.bos_token_id = END, BEGIN
        model.save_pretrained(folder)
        file = folder / "config.json"
        config = json.loads(file.read_text(encoding="utf-8"))
        file.write_text(json.dumps({**config, **legacy_rope_keys(config)}, indent=2), encoding="utf-8")
        save_tokenizer(workload, folder)
        return {"parameters": sum(parameter.numel() for parameter in model.parameters())}

    return BuildKey(kind=CHECKPOINT_KIND, parts=parts), make


def legacy_rope_keys(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The rotary embedding under the configuration keys used before transformers 5, which engines read.

    transformers 5 stores it under `rope_parameters`. An engine that reads only `rope_theta` and `rope_scaling` would
    silently use its default base instead of the model's. Empty for a model without rotary embeddings, or with separate
    ones per kind of layer.
    """
    rope = config.get("rope_parameters")
    if not isinstance(rope, Mapping) or "rope_theta" not in rope:
        return {}
    keys = {key: rope[key] for key in ("rope_theta", "partial_rotary_factor") if key in rope}
    kind = rope.get("rope_type", "default")
    return {**keys, "rope_scaling": None if kind == "default" else {**rope, "type": kind}}


def save_tokenizer(workload: Workload, folder: Path) -> None:
    """Save the model's own tokenizer, or one with the vocabulary of ids."""
    if workload.path is not None and has_processor(Path(workload.path), "text"):
        for name in HUB_FILES:
            if (source := Path(workload.path) / name).is_file():
                shutil.copyfile(source, folder / name)
        return
    vocabulary = {token_text(token): token for token in range(vocabulary_size(workload))}
    tokenizer = {
        "version": "1.0",
        "added_tokens": [
            {
                "id": token,
                "content": token_text(token),
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for token in (BEGIN, END)
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": token_text(BEGIN)},
    }
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": token_text(BEGIN),
        "eos_token": token_text(END),
        "unk_token": token_text(BEGIN),
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")


GGUF_KIND, GGUF_FILE, GGUF_VERSION = "gguf", "model.gguf", 2
Vocabulary = Literal["rwkv", "gpt2"]
ARCHITECTURES: Mapping[str, str] = {
    "gemma": "gemma",
    "gpt2": "gpt2",
    "llama": "llama",
    "mistral": "llama",
    "phi": "phi2",
    "phi3": "phi3",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
}
"""transformers' model type -> llama.cpp's architecture."""
FLOAT_TYPES: Mapping[Precision, str] = {precision: name for name, precision in FLOAT_PRECISIONS.items()}
QUANTIZED: Mapping[str, Precision] = {
    name: precision_of(name) for name in ("Q8_0", "Q6_K", "Q5_K_M", "Q5_0", "Q4_K_M", "Q4_0", "IQ4_NL")
}
"""Types made here, with the precision each belongs to; the default of a precision comes first."""
K_MIXTURES: Mapping[str, tuple[str, str]] = {"Q4_K_M": ("Q4_K", "Q6_K"), "Q5_K_M": ("Q5_K", "Q6_K")}
"""Mixture -> its type, and the finer type of the most sensitive tensors."""
NARROW_ROWS: Mapping[str, str] = {"Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0"}
"""Type -> the type llama-quantize uses instead if the row length is not a multiple of 256."""
QUANTIZERS = (("xllamacpp", "xllamacpp.abi3.so"), ("llama_cpp", "lib/libggml-base.so"))
"""Module, and the library in its folder that exports ggml_quantize_chunk."""


def gguf_build(workload: Workload, type_name: str, vocabulary: Vocabulary = "rwkv") -> tuple[BuildKey, Make]:
    """The key of a model's GGUF file of a type ("F16", "Q4_K_M"), and what makes it."""
    library = "xllamacpp" if version_of("xllamacpp") is not None else "llama-cpp-python"
    parts: dict[str, Json] = {
        **model_parts(workload),
        "type": type_name,
        "version": GGUF_VERSION,
        "versions": {name: version_of(name) for name in ("torch", "transformers", "gguf", library)},
        **({} if vocabulary == "rwkv" else {"vocabulary": vocabulary}),
    }

    def make(folder: Path) -> Mapping[str, Json]:
        write_gguf(workload, torch_model(workload), type_name, folder / GGUF_FILE, vocabulary)
        header = read_gguf(folder / GGUF_FILE)
        return {"type": type_name, "file": GGUF_FILE, "weights_bytes": header.weights_bytes}

    return BuildKey(kind=GGUF_KIND, parts=parts), make


def write_gguf(workload: Workload, model: Any, type_name: str, path: Path, vocabulary: Vocabulary = "rwkv") -> None:
    """Write the file, in which a vocabulary of ids stands for the model's: without one, it would crash llama.cpp.

    The default vocabulary is RWKV's, which has no end token: llama.cpp never chooses an end token that it should
    ignore, so it would differ from eager whenever that token is the most likely one. Other readers support only
    GPT-2's kind, which has an end token and merges.
    """
    import gguf

    config = model.config
    architecture = ARCHITECTURES[str(config.model_type)]
    writer = gguf.GGUFWriter(path, architecture)
    layers, heads = int(config.num_hidden_layers), int(config.num_attention_heads)
    head = int(getattr(config, "head_dim", None) or config.hidden_size // heads)
    rope, size = rope_of(config.to_dict()), vocabulary_size(workload)
    writer.add_name("made from the weights")  # llama.cpp looks tokens up by names such as "phi-3"
    writer.add_string(ORIGIN, origin_text(workload))
    writer.add_context_length(int(config.max_position_embeddings))
    writer.add_embedding_length(int(config.hidden_size))
    writer.add_block_count(layers)
    inner = getattr(config, "intermediate_size", None) or getattr(config, "n_inner", None)
    writer.add_feed_forward_length(int(inner or 4 * config.hidden_size))
    writer.add_head_count(heads)
    writer.add_head_count_kv(int(getattr(config, "num_key_value_heads", None) or heads))
    writer.add_key_length(head)
    writer.add_value_length(head)
    if "rope_theta" in rope:
        writer.add_rope_freq_base(float(rope["rope_theta"]))
        writer.add_rope_dimension_count(int(head * float(rope.get("partial_rotary_factor", 1.0))))
    if (epsilon := getattr(config, "rms_norm_eps", None)) is not None:
        writer.add_layer_norm_rms_eps(float(epsilon))
    else:
        writer.add_layer_norm_eps(float(getattr(config, "layer_norm_eps", None) or config.layer_norm_epsilon))
    if (window := getattr(config, "sliding_window", None)) and str(config.model_type) == "phi3":
        writer.add_sliding_window(int(window))
    writer.add_vocab_size(size)
    writer.add_file_type(next(number for number, name in FILE_TYPES.items() if name == type_name))
    types = [int(gguf.TokenType.NORMAL)] * size
    writer.add_tokenizer_model(vocabulary)
    if vocabulary == "gpt2":
        writer.add_tokenizer_pre("gpt-2")
        writer.add_token_merges([f"{token_text(BEGIN)} {token_text(END)}"])
        writer.add_bos_token_id(BEGIN)
        writer.add_eos_token_id(END)
        types[BEGIN] = types[END] = int(gguf.TokenType.CONTROL)  # OpenVINO builds no tokenizer without special tokens
    writer.add_token_list([token_text(token) for token in range(size)])
    writer.add_token_types(types)
    writer.add_add_bos_token(False)
    model_arch = next(each for each, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    names = gguf.get_tensor_name_map(model_arch, layers)
    is_tied = bool(getattr(config, "tie_word_embeddings", True))
    for name, tensor in model.state_dict().items():
        if is_tied and name.startswith("lm_head."):
            continue
        stored = names.get_name(name, try_suffixes=(".weight", ".bias"))
        if stored is None:
            raise BenchhouseError(f"{workload.model_id}: llama.cpp has no tensor for {name} in {architecture}")
        array = _llama_cpp_layout(config, stored, tensor.float().numpy())
        chosen = _type_of(type_name, stored, array, layers, is_tied=is_tied)
        _add(writer, stored, array, chosen)
    if rope.get("rope_type") == "llama3":  # the factors that slow its low frequencies, as modeling_rope_utils has them
        waves = 2 * np.pi * rope["rope_theta"] ** (np.arange(0, head, 2, dtype=np.float64) / head)
        factor, low, high = (float(rope[name]) for name in ("factor", "low_freq_factor", "high_freq_factor"))
        smooth = np.clip((float(rope["original_max_position_embeddings"]) / waves - low) / (high - low), 0, 1)
        _add(writer, "rope_freqs.weight", (1 / ((1 - smooth) / factor + smooth)).astype(np.float32), "F32")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _llama_cpp_layout(config: Any, name: str, array: np.ndarray) -> np.ndarray:
    """A tensor in llama.cpp's layout."""
    kind = str(config.model_type)
    if ARCHITECTURES[kind] == "llama" and (".attn_q." in name or ".attn_k." in name):
        heads = config.num_attention_heads if ".attn_q." in name else config.num_key_value_heads
        array = array.reshape(heads, 2, array.shape[0] // heads // 2, *array.shape[1:]).swapaxes(1, 2)
        array = array.reshape(-1, *array.shape[3:])
    if kind == "gemma" and name.endswith("norm.weight"):
        array = array + 1
    if kind == "gpt2" and name.endswith(("attn_qkv.weight", "attn_output.weight", "ffn_up.weight", "ffn_down.weight")):
        array = array.T
    return np.ascontiguousarray(array, dtype=np.float32)


def _type_of(type_name: str, name: str, array: np.ndarray, layers: int, *, is_tied: bool) -> str:
    """The type of a tensor in a mixture, as llama-quantize chooses it: vectors and positions stay in float32."""
    if array.ndim < 2 or name.startswith("position_embd"):
        return "F32"
    if type_name in FLOAT_TYPES.values():
        return type_name
    plain, finer = K_MIXTURES.get(type_name, (type_name, type_name))
    is_output = name == "output.weight" or (is_tied and name == "token_embd.weight")
    if is_output:
        plain = "Q6_K" if type_name != "Q8_0" else "Q8_0"
    elif name.endswith(("attn_v.weight", "ffn_down.weight")):
        # llama-quantize's `use_more_bits`: the first and last eighth of the layers, and every third in between.
        layer, eighth = int(name.split(".")[1]), layers // 8
        if layer < eighth or layer >= 7 * layers // 8 or (layer - eighth) % 3 == 2:
            plain = finer
    if plain.endswith("_K") and array.shape[-1] % 256:
        plain = NARROW_ROWS[plain]
    return plain


def _add(writer: Any, name: str, array: np.ndarray, type_name: str) -> None:
    import gguf

    if type_name in ("F32", "F16"):
        writer.add_tensor(name, array.astype(np.float32 if type_name == "F32" else np.float16))
        return
    kind = gguf.GGMLQuantizationType[type_name]
    if type_name == "BF16":
        writer.add_tensor(name, gguf.quants.quantize(array, kind), raw_dtype=kind)
        return
    specs = ((importlib.util.find_spec(module), file) for module, file in QUANTIZERS)
    folders = ((spec.submodule_search_locations or (), file) for spec, file in specs if spec is not None)
    paths = (Path(folder) / file for places, file in folders for folder in places)
    if (library := next((path for path in paths if path.is_file()), None)) is None:
        raise UnsupportedError("quantizing GGUF files needs llama.cpp: pip install xllamacpp")
    quantize = ctypes.CDLL(str(library)).ggml_quantize_chunk
    quantize.restype = ctypes.c_size_t
    int64, matrix = ctypes.c_int64, ctypes.POINTER(ctypes.c_float)
    quantize.argtypes = [ctypes.c_int, matrix, ctypes.c_void_p, int64, int64, int64, matrix]
    (rows, width), sizes = array.shape, TYPES[int(kind)]
    packed = np.zeros((rows, width // sizes.block * sizes.bytes), dtype=np.uint8)
    target = packed.ctypes.data_as(ctypes.c_void_p)
    quantize(int(kind), array.ctypes.data_as(matrix), target, 0, rows, width, None)
    writer.add_tensor(name, packed, raw_dtype=kind)
