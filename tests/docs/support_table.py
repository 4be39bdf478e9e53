"""The support table: runtimes by family, device and precision, as Markdown with the reasons in notes.

    python -m tests.docs.support_table

writes it into docs/runtimes-and-devices.md.

Plugins are asked about fully equipped devices with every package installed, so that the table is the same on every
machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarking.core import plugins
from benchmarking.core.contracts import Runtime
from benchmarking.core.plugins import ALL_ASSUMED, kinds
from benchmarking.core.records import PRECISIONS, Device, Precision, Readings, Workload
from benchmarking.sweep.plan.measuring_settings import option_meaning, runtime_options, runtimes_by_values
from tests.helpers.paths import ROOT

PAGE = ROOT / "docs" / "runtimes-and-devices.md"
START, END = "<!-- support-table -->", "<!-- /support-table -->"

DEVICES: tuple[Device, ...] = tuple(
    Device(
        type=kind.name,
        selector=selector,
        found=True,
        name=name,
        facts=Readings(values={"native_precisions": ["float32", "bfloat16", "float16"]}),
        precisions=PRECISIONS,
    )
    for kind in kinds()
    for selector, name in kind.typical.items()
)
"""The typical devices of every kind, with every capability of the kind."""

SLOTS = ("\N{BULLET}1", "\N{BULLET}2", "\N{BULLET}3", "\N{BULLET}4")
"""Placeholders for the names of a precision, a device, a task and a model type in the text of a note."""


class Notes:
    """Numbered notes. Reasons that differ only in the name of a precision, device, task or model type share a note."""

    def __init__(self) -> None:
        self._words: dict[str, list[dict[str, None]]] = {}

    def mark(self, reasons: Sequence[Reason]) -> str:
        """The superscript marks of some reasons, to append to a word; empty without reasons."""
        numbers = set()
        for reason in reasons:
            places = self._words.setdefault(reason.template, [{} for _ in SLOTS])
            for place, word in zip(places, reason.words, strict=True):
                place[word] = None
            numbers.add(list(self._words).index(reason.template) + 1)
        return f" <sup>{', '.join(map(str, sorted(numbers)))}</sup>" if numbers else ""

    def lines(self) -> list[str]:
        """The notes in the order of their numbers."""
        return [f"{number}. {self._text(template)}" for number, template in enumerate(self._words, start=1)]

    def _text(self, template: str) -> str:
        for slot, words in zip(SLOTS, self._words[template], strict=True):
            *some, last = words
            template = template.replace(slot, f"{', '.join(some)} or {last}" if some else last)
        return " ".join(template.split()).replace("|", "\\|").replace("<", "&lt;")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Why a combination is unsupported, with placeholders for the names of precision, device, task and model type."""

    template: str
    words: tuple[str, str, str, str]

    @classmethod
    def of(cls, text: str, precision: str, device: Device, task: str, model_type: str) -> Reason:
        """A plugin's reason. The name of a device or model type becomes a placeholder where the sentence says "not on
        cuda", "not for t5"."""
        precision_slot, device_slot, task_slot, model_slot = SLOTS
        text = text.replace(task, task_slot).replace(precision, precision_slot)
        for start in ("not on ", "not of "):
            text = text.replace(f"{start}{device.type}", f"{start}{device_slot}")
        if text.endswith(absent := f"not for {model_type}"):
            text = f"{text.removesuffix(absent)}not for {model_slot}"
        return cls(template=text, words=(precision, device.type, task, model_type))


Answers = Mapping[str, Mapping[str, Mapping[Precision, Reason | None]]]
"""The answers of a runtime: device -> tiny model -> precision -> None if supported, else the reason."""


def table_text() -> str:
    """The tables of families and precisions with their notes, and the table of options."""
    notes = Notes()
    answers = {runtime.name: ask(runtime) for runtime in plugins.runtimes() if runtime.is_compared}
    families = [
        [family, *(_family_cell(of, models, notes) for of in answers.values())]
        for family, models in tiny_models_by_family().items()
    ]
    devices = [device.selector for device in DEVICES]
    precisions = [[name, *(_precision_cell(of[device], notes) for device in devices)] for name, of in answers.items()]
    parts = (
        _markdown(["family", *answers], families),
        _markdown(["runtime", *(device.name or device.type for device in DEVICES)], precisions),
        notes.lines(),
        _markdown(["option", "chooses", "values"], _option_rows()),
    )
    return "\n\n".join("\n".join(lines) for lines in parts)


def ask(runtime: Runtime) -> Answers:
    """The answers of a runtime for each nominal device, tiny model and precision, with every package installed."""
    models = [model for of_family in tiny_models_by_family().values() for model in of_family]
    token = ALL_ASSUMED.set(True)
    try:
        return {
            device.selector: {
                model.model_id: {precision: _reason(runtime, device, model, precision) for precision in PRECISIONS}
                for model in models
            }
            for device in DEVICES
        }
    finally:
        ALL_ASSUMED.reset(token)


def _option_rows() -> list[list[str]]:
    """A row for each option of a runtime: its flag, what it chooses, and its values by runtime."""
    rows = []
    for by_runtime in runtime_options().values():
        flag = next(iter(by_runtime.values())).flag
        values = [f"{', '.join(names)}: {words}" for words, names in runtimes_by_values(by_runtime).items()]
        rows.append([f"`{flag}`", option_meaning(by_runtime), "; ".join(values)])
    return rows


def _reason(runtime: Runtime, device: Device, workload: Workload, precision: Precision) -> Reason | None:
    why = runtime.supports(device, workload, precision)
    if why is None:
        return None
    return Reason.of(why, precision, device, workload.task, str(workload.config.get("model_type")))


def tiny_models_by_family() -> Mapping[str, Sequence[Workload]]:
    """The catalog's tiny models of each family, at the family's default task."""
    from benchmarking.workloads.support import families
    from benchmarking.workloads.support.resolve import resolve

    found = [resolve(entry.name, weights="random") for entry in families.catalog_entries() if not entry.hub]
    by_family = {family: [one for one in found if one.family == family] for family in plugins.family_names()}
    return {family: models for family, models in by_family.items() if models}


def between_markers(text: str) -> str | None:
    """The text between the markers of a Markdown text, or None."""
    _, start, rest = text.partition(START)
    inside, end, _ = rest.partition(END)
    return inside.strip("\n") if start and end else None


def _family_cell(answers: Answers, models: Sequence[Workload], notes: Notes) -> str:
    """Yes if the runtime runs a model of the family on any device, with notes for the models and devices where it does
    not."""
    supported = [of[model.model_id] for of in answers.values() if any(map(_runs, of.values())) for model in models]
    refused = [of["float32"] for of in supported if not _runs(of)]
    word = "yes" if len(refused) < len(supported) else "-"
    return word + notes.mark([why for why in refused if why is not None])


def _precision_cell(of: Mapping[str, Mapping[Precision, Reason | None]], notes: Notes) -> str:
    """The precisions that the runtime supports for all its models on the device, with notes about the others."""
    running = [answers for answers in of.values() if _runs(answers)]
    if not running:
        nothing = next(iter(of.values()))["float32"]
        return "-" + notes.mark([] if nothing is None else [nothing])
    reasons: dict[Precision, Reason] = {}
    for answers in running:
        reasons |= {precision: why for precision, why in answers.items() if why is not None}
    has = [precision for precision in PRECISIONS if precision not in reasons]
    return " ".join(has) + notes.mark(list(reasons.values()))


def _runs(answers: Mapping[Precision, Reason | None]) -> bool:
    """Whether any precision is supported."""
    return any(why is None for why in answers.values())


def _markdown(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [headings, ["---"] * len(headings), *rows]
    return [f"| {' | '.join(line)} |" for line in lines]


def write(page: Path) -> None:
    """Put the table between the markers of a page. Raises ValueError for a page without them."""
    text = page.read_text(encoding="utf-8")
    if between_markers(text) is None:
        raise ValueError(f"{page} does not contain {START} followed by {END}")
    before, after = text.split(START)[0], text.split(END, 1)[1]
    page.write_text(f"{before}{START}\n{table_text()}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    write(PAGE)
