"""Denoising models of diffusers for a workload: the class, an unfilled model, or one with a folder's weights."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from benchmarking.core.errors import BenchhouseError, UnsupportedError, first_line
from benchmarking.core.records import Json, Workload
from benchmarking.workloads.support.random_weights import skip_random_initialisation

UNET = "UNet2DConditionModel"
DIT = "DiTTransformer2DModel"
OLD_TRANSFORMER = "Transformer2DModel"
"""The class that DiT's published configurations name. diffusers has since given DiT one of its own."""

NO_EXTRAS = ("class_embed_type", "num_class_embeds", "encoder_hid_dim_type")
"""Settings of a UNet for inputs beside the noise, the step and the prompt, which are not made here."""


def missing() -> str | None:
    """None, or what must be installed and how."""
    if importlib.util.find_spec("diffusers") is not None:
        return None
    return "diffusion models need diffusers, which is not installed: pip install diffusers"


def class_name(config: Mapping[str, Json]) -> str:
    """The class of diffusers that runs a configuration."""
    name = str(config.get("_class_name"))
    return DIT if name == OLD_TRANSFORMER else name


def unsupported(config: Mapping[str, Json]) -> str | None:
    """None, or why a configuration is not of a model that turns noise and a prompt (or class) into a latent image."""
    given, taken, gives = config.get("_class_name"), config.get("in_channels", 4), config.get("out_channels", 4)
    if class_name(config) == DIT:
        if config.get("norm_type", "ada_norm_zero") != "ada_norm_zero":
            return f"a {given} with norm_type {config.get('norm_type')} is not a DiT, the only such model that is run"
        return None
    for name in NO_EXTRAS:
        if config.get(name) is not None:
            return f"a {given} with {name} {config[name]} takes inputs that are not made here"
    if config.get("addition_embed_type") not in (None, "text_time"):
        return f"a {given} with addition_embed_type {config['addition_embed_type']} takes inputs that are not made here"
    if not isinstance(config.get("cross_attention_dim", 1280), int):
        return f"a {given} with cross_attention_dim {config['cross_attention_dim']} takes several prompts"
    if taken != gives:
        return f"a {given} that takes {taken} channels and gives {gives} is not a plain denoiser (inpainting, ...)"
    return None


def model_class(workload: Workload) -> Any:
    """The denoiser's class, its module imported. Raises UnsupportedError without diffusers, or for a model it is not
    the class of."""
    if (why_not := missing() or unsupported(workload.config)) is not None:
        raise UnsupportedError(f"{workload.model_id}: {why_not}")
    import diffusers

    return getattr(diffusers, class_name(workload.config))


def build(workload: Workload, *, dtype: Any) -> Any:
    """The model from its configuration alone, in eval mode; the caller fills the weights."""
    kind = model_class(workload)
    try:
        with _quiet(), _default_dtype(dtype):
            model = kind.from_config(dict(workload.config))
    except (TypeError, ValueError, NotImplementedError) as error:
        raise BenchhouseError(f"{workload.model_id} cannot be made: {first_line(error)}") from error
    return model.eval()


def load(workload: Workload, *, dtype: Any) -> tuple[Any, tuple[str, ...]]:
    """The model with the safetensors weights in `workload.path`, in host memory and eval mode; nothing is missing.

    Raises BenchhouseError when the weights are not this model's, or not all of them.
    """
    kind = model_class(workload)
    try:
        with _quiet(), skip_random_initialisation():
            model, report = kind.from_pretrained(
                workload.path,
                torch_dtype=dtype,
                use_safetensors=True,
                local_files_only=True,
                output_loading_info=True,
                low_cpu_mem_usage=False,  # the other way needs accelerate; no time goes into values written over
            )
    except (OSError, RuntimeError, TypeError, ValueError) as error:
        raise BenchhouseError(f"the weights in {workload.path} do not load: {first_line(error)}") from error
    if lacking := sorted(report["missing_keys"]):
        raise BenchhouseError(
            f"the weights in {workload.path} lack {len(lacking)} tensors of {kind.__name__}, the first is {lacking[0]}"
        )
    return model.eval(), ()


@contextmanager
def _default_dtype(dtype: Any) -> Iterator[None]:
    """Inside, new parameters have this dtype from the start, so that no second copy of them is ever made."""
    import torch

    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def _quiet() -> Iterator[None]:
    """No notes about settings of older versions that are ignored: what matters of loading is raised or stored."""
    from diffusers.utils import logging as library_logging

    verbosity = library_logging.get_verbosity()
    library_logging.set_verbosity(logging.ERROR)
    try:
        yield
    finally:
        library_logging.set_verbosity(verbosity)
