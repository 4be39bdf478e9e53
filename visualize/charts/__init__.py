"""Charts: one file each, found by listing this folder, its query beside it. Here is the contract they keep."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PACKAGE = __name__

Row = Mapping[str, Any]
"""One result by column name, as a query gave it; NULL is None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which results are asked for; None takes all."""

    model_id: str | None = None
    device: str | None = None
    """A selector ("cuda:0"), or a type for all devices of it ("cuda")."""
    runtime: str | None = None
    precision: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """SQL for the warehouse and the values of its named parameters."""

    sql: str
    parameters: Mapping[str, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """A finished figure and what its file is called after."""

    figure: Figure
    named_by: tuple[str, ...]
    """Parts of the file's name after the chart's: model, device, runtime, precision."""
    told_apart_by: tuple[str, ...] = ()
    """Further facts of the figure, the same ones in the same order for every drawing of a chart: those that differ are
    added to the name where two drawings would have the same one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotDrawn:
    """A picture that could have been expected, and why there is none."""

    what: str
    why: str


class ChartPlugin(Protocol):
    """A kind of picture. Importing the module imports no matplotlib."""

    name: str
    """What `--charts` takes; the file's name."""
    title: str
    needs: str
    """What must have been measured for it, for `--list-charts`."""
    scope: Literal["model", "models"]
    """Whether a picture shows one model or compares all of them; the latter ignores `Selection.model_id`."""

    def query(self, selection: Selection) -> Query:
        """Where its rows come from."""

    def draw(self, rows: Sequence[Row]) -> Iterator[Drawing | NotDrawn]:
        """The pictures of the rows, one at a time so that only one is held. Results are never mixed that are not
        alike: weights, tasks, machines and settings that differ go to different pictures, or are named in this one."""
