"""Fixtures of the charts' tests: rows as the warehouse gives them, and figures drawn from them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from matplotlib.collections import PathCollection
from matplotlib.colors import to_hex

from benchmarking import plugins
from benchmarking.ids import uuid7
from benchmarking.records import Doubt, canonical_hash
from db.warehouse import OWN, SHARED, Warehouse
from visualize.drawing.rows import PACKAGE, Drawing, Selection


@pytest.fixture(scope="session")
def shared_warehouse():
    """One warehouse for all tests: making it takes longer than a test."""
    with Warehouse.open(":memory:") as warehouse:
        yield warehouse


@pytest.fixture
def rows_of(shared_warehouse):
    """The rows a chart's query gives of runs."""

    def rows(name, *runs, **selection):
        for table in (*SHARED, *OWN, "series_heads"):
            shared_warehouse.query(f"DELETE FROM {table}")
        for run in runs:
            shared_warehouse.ingest(run)
        query = plugins.load(PACKAGE, name).query(Selection(**selection))
        return shared_warehouse.query(query.sql, query.parameters).dicts()

    return rows


@pytest.fixture
def outcomes(rows_of):
    """Everything a chart makes of runs: drawings and what is not drawn."""

    def draw(name, *runs, **selection):
        return list(plugins.load(PACKAGE, name).draw(rows_of(name, *runs, **selection)))

    return draw


@pytest.fixture
def figures(outcomes):
    """The figures a chart draws of runs."""

    def draw(name, *runs, **selection):
        return [outcome.figure for outcome in outcomes(name, *runs, **selection) if isinstance(outcome, Drawing)]

    return draw


class Alter:
    """Changes runs made by `make_run`."""

    LONG_MODEL = "an-organisation/an-extremely-long-model-name-that-goes-on-and-on-v2.5-instruct-awq-int4-128g-and-more"
    UNBREAKABLE_MODEL = "b" * 110
    LONG_DEVICE = "A Vendor's Accelerator Card with a Name for $x_1$ Every Occasion and a Very Long Suffix Indeed"

    @staticmethod
    def on_device(run, name, selector="cpu", **facts):
        """The run, as if measured on another device."""
        device = replace(run.cell.device, name=name, selector=selector, **facts)
        keys = {"device_name": name, "selector": selector}
        hardware = replace(run.hardware, device=device, hashed_keys=keys, hardware_id=canonical_hash(keys)[:16])
        return replace(run, cell=replace(run.cell, device=device), hardware=hardware)

    @staticmethod
    def workload(run, **facts):
        """The run, as if of another workload."""
        return replace(run, cell=replace(run.cell, workload=replace(run.cell.workload, **facts)))

    @staticmethod
    def mode(run, **settings):
        """The run, as if with other settings of the runtime."""
        return replace(run, cell=replace(run.cell, runtime_mode=settings))

    @staticmethod
    def renewed(run):
        """The run with ids of its own."""
        results = tuple(replace(result, result_id=uuid7()) for result in run.results)
        return replace(run, run_id=uuid7(), results=results)

    @staticmethod
    def results(run, change, where=lambda point: True):
        """The run with the results at some points changed."""
        changed = [change(result) if where(result.point) else result for result in run.results]
        return replace(run, results=tuple(changed))

    @staticmethod
    def only(run, where):
        """The run with the results at some points only."""
        return replace(run, results=tuple(result for result in run.results if where(result.point)))

    @staticmethod
    def failed(result):
        """The result, as if its point had failed."""
        error = "OutOfMemoryError: too big"
        return replace(result, status="failed", validity=None, error=error, metrics={}, launches=0, samples=())

    @staticmethod
    def noisy(result):
        """The result, in doubt."""
        return replace(result, validity="noisy", doubts=(Doubt(kind="cpu_pressure", severity="noisy"),))

    @staticmethod
    def invalid(result):
        """The result, with a wrong output."""
        return replace(result, validity="invalid", doubts=(Doubt(kind="nan_output", severity="invalid"),))

    @staticmethod
    def at(**changes):
        """A change of a result's point."""
        return lambda result: replace(result, point=replace(result.point, **changes))

    @staticmethod
    def metrics(**values):
        """A change of a result's metrics; None takes one away."""

        def change(result):
            merged = {**result.metrics, **values}
            return replace(result, metrics={name: value for name, value in merged.items() if value is not None})

        return change


class See:
    """Reads figures."""

    @staticmethod
    def artist(axes, label):
        """The one artist of the panel that is labelled so."""
        (artist,) = [artist for artist in axes.get_children() if artist.get_label() in (label, f"_{label}")]
        return artist

    @staticmethod
    def labels(axes):
        """The labels of everything in the panel that shows data."""
        given = [str(artist.get_label()) for artist in (*axes.lines, *axes.collections)]
        return sorted(label.removeprefix("_") for label in given)

    @classmethod
    def points(cls, axes, label):
        """The (x, y) of a line or of marks."""
        artist = cls.artist(axes, label)
        points = artist.get_offsets() if isinstance(artist, PathCollection) else artist.get_xydata()
        return [(float(x), float(y)) for x, y in points]

    @classmethod
    def face(cls, axes, label):
        """The colour inside the marks that are labelled so, as #rrggbb."""
        (colour,) = {to_hex(face) for face in cls.artist(axes, label).get_facecolor()}
        return colour

    @classmethod
    def look(cls, axes, label):
        """The colour and the outline of the marks that are labelled so."""
        (outline,) = cls.artist(axes, label).get_paths()
        return cls.face(axes, label), tuple(map(tuple, outline.vertices.tolist()))

    @classmethod
    def band(cls, axes, label):
        """The (x, low, high) of a band."""
        corners = {
            tuple(map(float, corner)) for path in cls.artist(axes, label).get_paths() for corner in path.vertices
        }
        sizes = sorted({x for x, _ in corners})
        return [(x, min(y for at, y in corners if at == x), max(y for at, y in corners if at == x)) for x in sizes]

    @staticmethod
    def title(axes, **where):
        """What stands above a panel, unwrapped."""
        return axes.get_title(**where).replace("\n", " ").replace("\N{NO-BREAK SPACE}", " ")

    @classmethod
    def whiskers(cls, axes, label):
        """The (x, low, high) of a whisker."""
        (x, low), (_, high) = cls.points(axes, label)
        return x, low, high

    @staticmethod
    def texts(figure):
        """All text above and below the panels, unwrapped."""
        return [text.get_text().replace("\n", " ").replace("\N{NO-BREAK SPACE}", " ") for text in figure.texts]

    @staticmethod
    def legend(figure):
        """The legend's entries."""
        (legend,) = figure.legends
        return [text.get_text() for text in legend.get_texts()]


@pytest.fixture
def alter():
    return Alter


@pytest.fixture
def see():
    return See
