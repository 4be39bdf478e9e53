"""Pictures of a profile on pages and in reports: SVG without scripts, with tables of the values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarking.core.text import number, visible
from visualize.drawing import profiles
from visualize.drawing.profiles import Block
from visualize.drawing.rows import Row
from visualize.pages.elements import Grid, Heading, number_cell, text_cell

ROW = 24
"""Height of a row in pixels."""
LETTERS = 130
"""Characters of small text in the width of a picture on a typical screen."""
LEAST_LETTERS = 4
NAMES = 26.0
"""Percent of the width for the names of layers."""
MOST_OPERATORS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A block of a picture; horizontal lengths in percent of the width, vertical lengths in pixels."""

    left: float
    width: float
    top: int
    kind: str
    is_operator: bool
    label: str
    """Empty if it does not fit."""
    words: str
    """For tooltips and screen readers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Name:
    """A label next to bars."""

    left: float
    top: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """A picture with its text and a table of its values."""

    title: str
    """The finding."""
    caption: str
    bars: tuple[Bar, ...]
    names: tuple[Name, ...]
    legend: tuple[tuple[str, str], ...]
    """(kind of module, name)."""
    height: int
    table: Grid


def pictures(row: Row) -> tuple[Bars, ...]:
    """The flame graph of a profile, and its layer times if it has layers."""
    layers = profiles.layers(row)
    blocks = profiles.flame(row)
    return (*((_flame(row, blocks),) if blocks else ()), *((_layers(row, layers),) if layers else ()))


def _flame(row: Row, blocks: Sequence[Block]) -> Bars:
    return Bars(
        title=visible(profiles.flame_title(row)),
        caption=f"The full width is a call of {number(profiles.total_ms(row), 3)} ms ({profiles.clock(row)}). Modules "
        "are nested from the top down, with operators (paler) below the module that called them; a gap below a module "
        f"is its own code. {profiles.notes(row)[0]}",
        bars=tuple(
            Bar(
                left=round(100 * block.begin, 3),
                width=round(100 * block.share, 3),
                top=ROW * block.depth,
                kind=block.kind,
                is_operator=block.is_operator,
                label=_fitting(block.label, block.share),
                words=visible(block.words),
            )
            for block in blocks
        ),
        names=(),
        legend=_legend(blocks),
        height=ROW * (1 + max(block.depth for block in blocks)),
        table=modules_table(row),
    )


def _fitting(label: str, share: float) -> str:
    most = int(share * LETTERS)
    if len(label) <= most:
        return visible(label)
    return visible(f"{label[: most - 1]}…") if most > LEAST_LETTERS else ""


def _layers(row: Row, found: dict[str, list[Block]]) -> Bars:
    longest = max(sum(block.ms for block in own) for own in found.values()) or 1.0
    scale = (100 - NAMES - 8) / longest
    blocks = [block for own in found.values() for block in own]
    bars: list[Bar] = []
    names: list[Name] = []
    for place, (layer, own) in enumerate(found.items()):
        left = NAMES
        names.append(Name(left=0.0, top=ROW * place, text=visible(layer)))
        for block in own:
            width = scale * block.ms
            bars.append(
                Bar(
                    left=round(left, 3), width=round(width, 3), top=ROW * place, kind=block.kind, is_operator=False,
                    label="", words=visible(block.words),
                )
            )  # fmt: skip
            left += width
        total = sum(block.ms for block in own)
        names.append(Name(left=round(left + 0.5, 3), top=ROW * place, text=f"{number(total, 3)} ms"))
    return Bars(
        title=visible(profiles.layers_title(row)),
        caption=f"{profiles.clock(row).capitalize()} per call, by layer and kind of module.",
        bars=tuple(bars),
        names=tuple(names),
        legend=_legend(blocks),
        height=ROW * len(found),
        table=_layers_table(row, found),
    )


def _legend(blocks: Sequence[Block]) -> tuple[tuple[str, str], ...]:
    return tuple((kind, profiles.WORDS.get(kind, kind)) for kind in profiles.kinds_of(blocks))


def _layers_table(row: Row, found: dict[str, list[Block]]) -> Grid:
    total = profiles.total_ms(row)
    return Grid(
        headings=tuple(
            Heading(text=name, is_number=name in ("ms", "share")) for name in ("layer", "part", "ms", "share")
        ),
        rows=tuple(
            (text_cell(layer), text_cell(block.label), number_cell(block.ms), text_cell(f"{block.ms / total:.1%}"))
            for layer, own in found.items()
            for block in own
        ),
        caption="Time by layer",
    )


def modules_table(row: Row) -> Grid:
    """Modules with their times in ms per call."""
    total = profiles.total_ms(row)
    numbers = ("calls", "own ms", "share", "total ms")
    return Grid(
        headings=tuple(Heading(text=name, is_number=name in numbers) for name in ("module", "class", "part", *numbers)),
        rows=tuple(
            (
                text_cell(module["module"] or "outside modules"),
                text_cell(module["class_name"]),
                text_cell(profiles.WORDS.get(module["kind"], module["kind"])),
                number_cell(module["calls"]),
                number_cell(module["exclusive_ms"]),
                text_cell(f"{module['exclusive_ms'] / total:.1%}" if total else None),
                number_cell(module["inclusive_ms"]),
            )
            for module in row["modules"] or ()
        ),
        caption="Time by module",
    )


def operators_table(row: Row) -> Grid:
    """The longest operators, summed over modules."""
    spent: dict[str, list[Row]] = {}
    for operator in row["operators"] or ():
        spent.setdefault(operator["operator"], []).append(operator)
    total = profiles.total_ms(row)
    longest = sorted(spent, key=lambda name: -sum(one["exclusive_ms"] for one in spent[name]))[:MOST_OPERATORS]
    numbers = ("calls", "own ms", "share")
    return Grid(
        headings=tuple(Heading(text=name, is_number=name in numbers) for name in ("operator", *numbers, "limited by")),
        rows=tuple(
            (
                text_cell(name),
                number_cell(sum(one["calls"] for one in spent[name])),
                number_cell(own := sum(one["exclusive_ms"] for one in spent[name])),
                text_cell(f"{own / total:.1%}" if total else None),
                text_cell(" and ".join(sorted({one["bound"] for one in spent[name] if one["bound"]})) or None),
            )
            for name in longest
        ),
        caption="Longest operators",
    )
