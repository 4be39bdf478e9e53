"""Which servers a load test starts: by a command, by the name of an engine (`PRESETS`), or by a YAML list of them.

A command is a list of words (no shell reads it) with `{port}`, `{model}` and the names of swept values in braces. There
is a server for each combination of the swept values.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from itertools import product
from pathlib import Path
from typing import Any

from benchmarking.core.child_process import program
from benchmarking.core.errors import UsageError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.records import Scalar
from benchmarking.core.text import flag_of
from benchmarking.core.untrusted.input_files import Node, read_yaml
from benchmarking.core.untrusted.redaction import know_secrets_in

PLACE = re.compile(r"\{([A-Za-z_]\w*)\}")
PORT, MODEL = "port", "model"
MOST_COMBINATIONS = 256
YAML = (".yaml", ".yml")
KEYS = ("serve", "model", "engine", "sweep")
"""The keys of an entry in a YAML list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """How an engine's server is started."""

    engine: str
    command: str
    path: str = "/v1"
    """Where its API is."""
    false: str | None = "--no-"
    """What the flag of a switch begins with to turn it off; None if leaving it out does."""
    has_underscores: bool = False
    """Whether its flags have underscores, not hyphens."""
    states_switches: bool = False
    """Whether a switch takes its value: "--name=true", "--name=false"."""
    metrics: tuple[str, ...] = ()
    """Flags with which it shows its metrics. They follow the command and do not distinguish series."""
    has_flags: bool = True
    """Whether its settings are flags, so that swept names can become flags."""


PRESETS: Mapping[str, Preset] = {
    one.engine: one
    for one in (
        Preset(engine="vllm", command="vllm serve {model} --host 127.0.0.1 --port {port}"),
        Preset(
            engine="sglang",
            command="python -m sglang.launch_server --model-path {model} --host 127.0.0.1 --port {port} "
            "--enable-metrics",
            false=None,
        ),
        Preset(engine="llama-server", command="llama-server --model {model} --host 127.0.0.1 --port {port} --metrics"),
        Preset(engine="ollama", command="env OLLAMA_HOST=127.0.0.1:{port} ollama serve", has_flags=False),
        Preset(
            engine="tgi",
            command="text-generation-launcher --model-id {model} --hostname 127.0.0.1 --port {port}",
            false=None,
        ),
        Preset(
            engine="tensorrt-llm",
            command="trtllm-serve {model} --host 127.0.0.1 --port {port}",
            false=None,
            has_underscores=True,
        ),
        Preset(
            engine="ovms",
            command="ovms --rest_bind_address 127.0.0.1 --rest_port {port} --source_model {model} "
            "--model_repository_path models --task text_generation",
            path="/v3",
            has_underscores=True,
            states_switches=True,
            metrics=("--metrics_enable",),
        ),
    )
}
"""By the name of the engine; from the documentation of each."""
NOT_STARTED = {
    "lmstudio": "LM Studio's server is part of its application: start it with `lms server start`, and give --url "
    "http://127.0.0.1:1234/v1",
}
"""Engines whose server cannot be started as a process of ours, and what to do instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Combination:
    """A server to start: a command, and the value of each swept name."""

    command: tuple[str, ...]
    """Words with names in braces."""
    values: Mapping[str, str] = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    """Swept names that become flags after the command."""
    model: str | None = None
    """The model to serve, and its name there; None if the command says which."""
    engine: str | None = None
    """None if it is unknown."""
    preset: Preset | None = None
    name: str = ""
    """What tells it from other servers of a list; empty where its values do."""

    @property
    def words(self) -> str:
        """The name and the values, such as "parallel=4 cache=q8_0"; empty without any."""
        return " ".join(filter(None, (self.name, *(f"{name}={value}" for name, value in self.values.items()))))

    @property
    def mode(self) -> dict[str, Scalar]:
        """What distinguishes its series: the command without values, and the values."""
        words = [word if PLACE.search(word) else shlex.quote(word) for word in self.command]
        words += [f"{self._flag(name)} {{{name}}}" for name in self.flags]
        values = {
            f"serve_{name}": (int(value) if re.fullmatch(r"0|[1-9]\d{0,8}", value) else value)
            for name, value in self.values.items()
        }
        return {"serve": " ".join(words), **values}

    @property
    def path(self) -> str:
        """Where its API is."""
        return "/v1" if self.preset is None else self.preset.path

    def filled(self, port: int) -> tuple[str, ...]:
        """The words to start. A word that is only a name with an empty value is left out."""
        values = {**({} if self.model is None else {MODEL: self.model}), **self.values, PORT: str(port)}
        words = ((word, PLACE.sub(lambda found: values[found[1]], word)) for word in self.command)
        given = [text for word, text in words if text or not PLACE.fullmatch(word)]
        if self.preset is None:  # then each name is in the command
            return tuple(given)
        for name in self.flags:
            value, flag = self.values[name], self._flag(name)
            if value not in ("true", "false"):
                given += [flag, value]
            elif self.preset.states_switches:
                given.append(f"{flag}={value}")
            elif value == "true":
                given.append(flag)
            elif self.preset.false is not None:
                given.append(flag.replace("--", self.preset.false, 1))
        return (*given, *self.preset.metrics)

    def _flag(self, name: str) -> str:
        has_underscores = self.preset is not None and self.preset.has_underscores
        return f"--{name}" if has_underscores else flag_of(name)


def servers(text: str, sweeps: Sequence[tuple[str, Sequence[str]]], model: str | None) -> list[Combination]:
    """The servers of `--serve`: a command, the name of an engine, or a YAML file. Raises UsageError for what cannot be
    started."""
    if text.lower().endswith(YAML) and len(text.split()) == 1:
        if sweeps:
            raise UsageError(f"--sweep {sweeps[0][0]}: with --serve {text}, write what to sweep into the file")
        entries = read_yaml(Path(text)).items()
        if not entries:
            raise UsageError(f"--serve {text}: the list contains no server")
        found = _named([combination for entry in entries for combination in _of_entry(entry, model)])
    else:
        found = combinations(text, sweeps, model)
    if len(found) > MOST_COMBINATIONS:
        raise UsageError(f"{len(found)} combinations exceed the limit of {MOST_COMBINATIONS}: sweep fewer values")
    for combination in found:
        words = combination.filled(1)
        name = words[0] if words else ""
        if os.path.basename(name) != name:
            if not os.access(name, os.X_OK) or os.path.isdir(name):
                raise UsageError(f"--serve: {name} is not a program that can be started: correct its path")
        elif not name or program(name) is None:
            raise UsageError(f"--serve: {name or 'nothing'} is not found in PATH: install it, or give its path")
    return found


def combinations(
    command: str, sweeps: Sequence[tuple[str, Sequence[str]]], model: str | None = None, engine: str | None = None
) -> list[Combination]:
    """A combination for each element of the product of the swept values, the last name varying fastest. Raises
    UsageError for a command that is none, and for names and values that do not fit it."""
    if command in NOT_STARTED:
        raise UsageError(f"--serve {command}: {NOT_STARTED[command]}")
    preset = PRESETS.get(command)
    try:
        words = tuple(shlex.split(command if preset is None else preset.command))
    except ValueError as error:
        raise UsageError(f"--serve {command!r}: {error}: quote it like a line of a shell") from error
    know_secrets_in(words)
    named = [name for word in words for name in PLACE.findall(word)]
    names = [name for name, _ in sweeps]
    if PORT not in named:
        known = f", or the name of an engine: {', '.join(PRESETS)}" if len(words) == 1 else ""
        raise UsageError(
            f"--serve requires {{port}} in the command, where its port goes: such as --port {{port}}{known}"
        )
    if MODEL in named and MODEL not in names and model is None:
        raise UsageError(f"--serve {command}: give MODEL, which it serves")
    if repeated := [name for name in names if names.count(name) > 1 or name == PORT]:
        why = "is chosen by this command" if repeated[0] == PORT else "is given twice: list its values, as in a=1,2"
        raise UsageError(f"--sweep {repeated[0]} {why}")
    if unknown := [name for name in named if name not in (*names, PORT, MODEL)]:
        raise UsageError(
            f"--serve: {{{unknown[0]}}} has no value: add --sweep {unknown[0]}=VALUE,VALUE, or in a file "
            f"sweep: {{{unknown[0]}: [VALUE, VALUE]}}"
        )
    unused = tuple(name for name in names if name not in named)
    if unused and (preset is None or not preset.has_flags):
        raise UsageError(
            f"--sweep {unused[0]}: the command does not contain {{{unused[0]}}}: write it there, where the value goes; "
            "a value may be a whole flag, or empty for none"
            + ("" if preset is None else f". The command of {preset.engine} is: {preset.command}")
        )
    return [
        Combination(
            command=words,
            values=dict(zip(names, values, strict=True)),
            flags=unused,
            model=model,
            engine=engine or (None if preset is None else preset.engine),
            preset=preset,
        )
        for values in product(*(values for _, values in sweeps))
    ]


def _named(found: Sequence[Combination]) -> list[Combination]:
    """The servers of a list, those that their values do not tell from the others named by their engine, model or
    command, or number."""
    words = [one.words for one in found]
    unclear = [one for one in found if len(found) > 1 and (not one.words or words.count(one.words) > 1)]
    ways = [
        [one.engine or "" for one in found],
        [one.model or "" for one in found],
        [f"{one.engine or ''} {one.model or ''}".strip() for one in found],
        [str(one.mode["serve"]) for one in found],
        [f"server {number}" for number in range(1, len(found) + 1)],
    ]
    for names in ways:
        named = [replace(one, name=name) if one in unclear else one for one, name in zip(found, names, strict=True)]
        texts = [one.words for one in named]
        if len(set(texts)) == len(found) and (len(found) == 1 or all(texts)):
            break
    return named


def _of_entry(entry: Node, model: str | None) -> list[Combination]:
    """The combinations of an entry of a YAML list. Raises UsageError with its place."""
    content = entry.mapping("a server")
    if unknown := [key for key in content if key not in KEYS]:
        content[unknown[0]].refuse(f"{unknown[0]!r} is no key of a server: expected {', '.join(KEYS)}")
    if "serve" not in content:
        entry.refuse("a server needs the key serve: its command with {port}, or the name of an engine")
    texts: dict[str, Any] = {key: content[key].plain() for key in KEYS[:3] if key in content}
    for key, value in texts.items():
        if not isinstance(value, str) or not value:
            content[key].refuse(f"{key} takes a text: got {content[key].text}")
    swept = content["sweep"].mapping("sweep") if "sweep" in content else {}
    sweeps = [(name, [_word(item) for item in values.items()]) for name, values in swept.items()]
    try:
        return combinations(texts["serve"], sweeps, texts.get("model", model), texts.get("engine"))
    except UsageError as error:
        entry.refuse(str(error))


def _word(item: Node) -> str:
    """A swept value as a word of a command: true and false as in JSON, none as no text."""
    value = item.plain()
    if isinstance(value, dict | list):
        item.refuse(f"a swept value is a number or a text: got {item.text}")
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)
