"""The kind of each module of a model: attention, feed-forward, normalisation, ...

There is no table of models. The innermost module with a telling type, class name or name in its parent decides;
otherwise the structure does: in a numbered layer with attention, modules with weights outside the attention are the
feed-forward network, and weights after the last layer are the head. Everything else is `other`.

Modules are described without torch, so this works for torch models and for modules named in an exported graph.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.profiles import (
    ATTENTION,
    CONVOLUTION,
    EMBEDDING,
    FEED_FORWARD,
    HEAD,
    MIXER,
    NORMALISATION,
    OTHER,
    in_layer,
)

NAME_PATTERNS = (
    (ATTENTION, re.compile(r"rotary|(^|_)rope(_|$)", re.IGNORECASE)),  # tables of positions, which attention applies
    (NORMALISATION, re.compile(r"norm(alization)?(\d*d)?$|(^|_)(ln|norm)(_?\w)?$", re.IGNORECASE)),
    (EMBEDDING, re.compile(r"embed(ding)?s?$", re.IGNORECASE)),
    (ATTENTION, re.compile(r"(attention|attn)\d*$", re.IGNORECASE)),
    (MIXER, re.compile(r"(mixer|ssm|mamba\d?)$", re.IGNORECASE)),
    (
        FEED_FORWARD,
        re.compile(r"(mlp|feed_?forward|ffn|experts?|moe|moe_?block|router)\d*$|(^|_)ff$|FF$", re.IGNORECASE),
    ),
    (HEAD, re.compile(r"(^|_)(lm_)?head$|LMHead$|^(classifier|score|qa_outputs|pooler)$|Pooler$|ClassificationHead$")),
)
"""Suffixes of a module's class or of its name in its parent, by kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleTraits:
    """What is known about a module besides its path."""

    class_name: str
    is_lookup: bool = False
    """Whether it is a lookup table."""
    is_convolution: bool = False
    is_activation: bool = False
    has_weights: bool = False
    """Whether it, or a module inside it, has a matrix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleInfo:
    """A module of a model."""

    path: str
    class_name: str
    kind: str
    layer: str | None


def classify_modules(modules: Mapping[str, ModuleTraits]) -> dict[str, ModuleInfo]:
    """Modules by path, in the model's order, with their kinds. The whole model may be among them as the path ""."""
    own: dict[str, str | None] = {}  # given by a module's type and names; None if they reveal nothing
    for path, module in modules.items():
        texts = (module.class_name, path.rpartition(".")[2])
        named = (kind for text in texts for kind, pattern in NAME_PATTERNS if pattern.search(text))
        own[path] = EMBEDDING if module.is_lookup else next(named, None)
    own[""] = None  # the whole model's name reveals nothing about its parts
    by_names: dict[str, str | None] = {}  # that of the innermost module around a path that has one
    for path in modules:
        around = [kind for enclosing in _enclosing_paths(path) if (kind := own.get(enclosing)) is not None]
        is_position = bool(around) and around[0] == EMBEDDING and ATTENTION in around  # lookups belong to the attention
        by_names[path] = ATTENTION if is_position else around[0] if around else None
    attending = [path for path in modules if by_names[path] == ATTENTION]
    holders = {parent for path in attending for parent in _enclosing_paths(path)}
    attended = {layer for path in attending if (layer := in_layer(path)) is not None}
    last = max((index for index, path in enumerate(modules) if in_layer(path) is not None), default=-1)
    result: dict[str, ModuleInfo] = {}
    for index, (path, module) in enumerate(modules.items()):
        kind = by_names[path]
        if kind is None:
            is_part = in_layer(path) in attended and path not in holders  # in a layer, but not around its attention
            if is_part and (module.has_weights or module.is_activation):
                kind = FEED_FORWARD
            elif module.is_convolution:
                kind = CONVOLUTION
            elif index > last and module.has_weights:
                kind = HEAD
        parent = result.get(path.rpartition(".")[0])
        if kind is None and parent is not None and parent.kind in (FEED_FORWARD, HEAD):
            kind = parent.kind
        result[path] = ModuleInfo(path=path, class_name=module.class_name, kind=kind or OTHER, layer=in_layer(path))
    return result


def _enclosing_paths(path: str) -> list[str]:
    """A path and those around it: "a.b.c", "a.b", "a"."""
    parts = path.split(".")
    return [".".join(parts[:count]) for count in range(len(parts), 0, -1)]
