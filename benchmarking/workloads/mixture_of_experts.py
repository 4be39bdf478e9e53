"""Mixture-of-experts text models (Mixtral, OLMoE, Switch and relatives): each token runs through a few experts.

The routing is read from the running model: the parameters that a token uses, and the balance of the experts' load. In
every layer the experts receive the router's choices along with the tokens. There are two forms: the numbers of each
token's experts (tokens x experts per token), and Switch's ones and zeros (tokens x 1 x experts), which lack tokens
beyond an expert's capacity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from benchmarking.core.contracts import FamilyOperation
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.lazy_modules import torch
from benchmarking.core.model_contracts import QualityKind, Recipe
from benchmarking.core.records import NOT_APPLICABLE, NOT_SUPPORTED, Family, Json, Point, Readings, Scalar, Workload
from benchmarking.workloads.support.families import positions
from benchmarking.workloads.support.generation import DecoderGeneration, EncoderDecoderGeneration
from benchmarking.workloads.support.transformers_models import EAGER, TextFamily

ENCODER_DECODERS = frozenset({"switch_transformers"})
"""Model types with an encoder. They have relative positions and thus no longest input."""


class MixtureOfExperts(TextFamily):
    """Mixtral, OLMoE, Qwen's, DeepSeek's, gpt-oss, Phi-3.5 and Granite mixtures, ERNIE 4.5; Switch Transformers.

    With random weights the routing differs from the trained model's: times are comparable, the experts' load is not
    (such results have the doubt random_routing).
    """

    name: Family = "mixture-of-experts"
    rank = 8
    has_routed_experts = True
    without_sdpa = frozenset({"gpt_oss", "switch_transformers"})
    model_types = (
        without_sdpa
        | ENCODER_DECODERS
        | {
            *("deepseek_v2", "deepseek_v3", "ernie4_5_moe", "granitemoe", "mixtral"),
            *("olmoe", "phimoe", "qwen2_moe", "qwen3_moe"),
        }
    )
    quality: Mapping[str, QualityKind] = {"text-generation": "text", "text2text-generation": "tokens"}

    def tasks_of(self, config: Mapping[str, Json]) -> tuple[str, ...]:
        return ("text2text-generation",) if config.get("model_type") in ENCODER_DECODERS else ("text-generation",)

    def max_sequence_length(self, config: Mapping[str, Json]) -> int | None:
        return None if config.get("model_type") in ENCODER_DECODERS else positions(config)

    def shares_positions(self, config: Mapping[str, Json]) -> bool:
        return config.get("model_type") not in ENCODER_DECODERS

    def verified(self, model: Any) -> Mapping[str, Json]:
        """`experts`: how the chosen experts are computed (transformers' name); eager computes them one by one."""
        return {"experts": getattr(model.config, "_experts_implementation", None) or EAGER}

    def recipe(self, workload: Workload) -> Recipe | str:
        if workload.task == "text-generation":
            return Recipe(plan="decoder", torch_facts=("active_parameter_count",))
        return (
            f"{workload.config.get('model_type')} computes its chosen experts in a data-dependent loop, which cannot "
            "be traced"
        )

    def graph_readings(self, workload: Workload, point: Point, facts: Mapping[str, Json]) -> Readings:
        missing = {"expert_load_imbalance": f"{NOT_SUPPORTED}: the graph does not output the router's choices"}
        if (active := facts.get("active_parameter_count")) is None:
            missing["active_parameter_count"] = f"{NOT_SUPPORTED}: not recorded in the bundle"
            return Readings(missing=missing)
        return Readings(values={"active_parameter_count": active}, missing=missing)

    def torch_operation(
        self, model: Any, workload: Workload, point: Point, inputs: Mapping[str, Any], mode: Mapping[str, Scalar]
    ) -> FamilyOperation:
        cache = str(mode.get("cache", self.caches[0]))
        if workload.task == "text2text-generation":
            return RoutedEncoderDecoderGeneration(model, point, inputs, cache)
        return RoutedDecoderGeneration(model, point, inputs, cache)


EXPERTS = "experts"
"""The name, in all models, of the module that holds a layer's experts. Experts shared by all tokens have other
names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerLoad:
    """The work of one layer's experts in a call."""

    parameters: int
    """Parameters of all the layer's experts, which have equal size."""
    experts_per_token: int
    tokens: tuple[int, ...]
    """Number of tokens per expert. A token routed to two experts counts twice."""

    @property
    def imbalance(self) -> float | None:
        """Tokens of the busiest expert over the mean: 1 if even, up to experts / experts per token if all tokens choose
        the same ones. None if no expert got a token."""
        total = sum(self.tokens)
        return max(self.tokens) * len(self.tokens) / total if total else None


def active_parameters(parameters: int, layers: Sequence[LayerLoad]) -> int:
    """All parameters minus those of the experts that a token does not use, layer by layer.

    Both halves of an encoder-decoder count, although a token passes through only one of them.
    """
    for layer in layers:
        experts = len(layer.tokens)
        parameters -= layer.parameters // experts * (experts - layer.experts_per_token)
    return parameters


def imbalance(layers: Sequence[LayerLoad]) -> float | None:
    """Mean imbalance over the layers in which an expert got a token; None if there is none."""
    values = [value for layer in layers if (value := layer.imbalance) is not None]
    return sum(values) / len(values) if values else None


def readings(model: Any, call: Callable[[], object]) -> Readings:
    """`active_parameter_count` and `expert_load_imbalance`, from an additional call of the model."""
    with _recorded(model) as choices:
        call()
    layers = [_load(module, chosen) for module, chosen in choices.items() if chosen]
    if not layers:
        why = f"{NOT_APPLICABLE}: no layer of {type(model).__name__} chooses between experts"
        return Readings(missing={"active_parameter_count": why, "expert_load_imbalance": why})
    values: dict[str, Json] = {
        "active_parameter_count": active_parameters(sum(p.numel() for p in model.parameters()), layers)
    }
    if (mean := imbalance(layers)) is None:
        return Readings(values=values, missing={"expert_load_imbalance": f"{NOT_APPLICABLE}: no expert got a token"})
    return Readings(values=values | {"expert_load_imbalance": mean})


def experts_of(model: Any) -> tuple[Any, ...]:
    """The modules that hold experts, one per layer with experts."""
    return tuple(module for name, module in model.named_modules() if name.rsplit(".", 1)[-1] == EXPERTS)


@contextmanager
def _recorded(model: Any) -> Iterator[Mapping[Any, list[Any]]]:
    """The router's choices by expert module, one tensor for each run of the layer."""
    choices: dict[Any, list[Any]] = {module: [] for module in experts_of(model)}

    def record(module: Any, arguments: tuple[Any, ...]) -> None:
        choices[module].append(arguments[1])

    handles = [module.register_forward_pre_hook(record) for module in choices]
    try:
        yield choices
    finally:
        for handle in handles:
            handle.remove()


def _load(module: Any, chosen: Sequence[Any]) -> LayerLoad:
    """The load of one layer from its router's choices."""
    experts = module.num_experts
    if chosen[0].dim() == 3:
        tokens = sum(each.sum(dim=(0, 1)) for each in chosen)
    else:
        tokens = sum(torch.bincount(each.flatten(), minlength=experts) for each in chosen)
    return LayerLoad(
        parameters=sum(parameter.numel() for parameter in module.parameters()),
        experts_per_token=chosen[0].shape[1],
        tokens=tuple(int(count) for count in tokens),
    )


class RoutedDecoderGeneration(DecoderGeneration):
    """A decoder-only mixture of experts: the routing covers a call's prompt and new tokens together."""

    def __init__(self, model: Any, point: Point, inputs: Mapping[str, Any], cache: str) -> None:
        super().__init__(model, point, inputs, cache)
        self._plain = partial(DecoderGeneration, _unwrapped(model), point, inputs, "dynamic")

    def readings(self, output: Any) -> Readings:
        return super().readings(output) | _readings_of(self._plain())


class RoutedEncoderDecoderGeneration(EncoderDecoderGeneration):
    """An encoder-decoder mixture of experts: the encoder's layers route the input, the decoder's the new tokens."""

    def __init__(self, model: Any, point: Point, inputs: Mapping[str, Any], cache: str) -> None:
        super().__init__(model, point, inputs, cache)
        self._plain = partial(EncoderDecoderGeneration, _unwrapped(model), point, inputs, "dynamic")

    def readings(self, output: Any) -> Readings:
        return super().readings(output) | _readings_of(self._plain())


def _readings_of(operation: Any) -> Readings:
    return readings(operation._model, lambda: operation.run(lambda name: None))


def _unwrapped(model: Any) -> Any:
    """The uncompiled model, as hooks do not reach into compiled code."""
    return getattr(model, "_orig_mod", model)


PLUGIN = MixtureOfExperts()
