"""Lines of Python that run a configuration in its runtime without benchhouse: the parts that several runtimes share.

Names and paths are written as literals (`repr`), since a model's name may be a stranger's.
"""

from __future__ import annotations

from pathlib import Path

from benchmarking.core.records import Cell, Point
from benchmarking.devices.support.binding import parse_cpu_list
from benchmarking.graphs.bundle import Bundle, Graph
from benchmarking.graphs.exported_model import sizes_at

TEXT = "An example of your text."


def bound(cell: Cell) -> list[str]:
    """The lines that bind the process to the cell's processors; none without a binding. They come first, so that every
    thread inherits it."""
    if cell.cpu_list is None:
        return []
    cpus = ", ".join(map(str, parse_cpu_list(cell.cpu_list)))
    return ["import os", "", f"os.sched_setaffinity(0, {{{cpus}}})", ""]


def forward_graph(bundle: Bundle) -> Graph | None:
    """The only graph of a bundle that is one pass; None for a loop of passes, which no few lines run."""
    return next(iter(bundle.graphs.values())) if bundle.kind == "forward" else None


def example_inputs(cell: Cell, point: Point, bundle: Bundle, graph: Graph) -> list[str]:
    """The lines of a dictionary `inputs` with ones in the shapes of the point, to be replaced by real inputs. Texts are
    measured without padding, so a graph may have no input for its mask."""
    sizes = sizes_at(cell, point, bundle)
    rows = []
    for tensor in graph.inputs:
        shape = tuple(sizes.get(str(size), size) for size in tensor.shape)
        rows.append(f"    {tensor.name!r}: np.ones({shape!r}, np.{tensor.dtype}),")
    names = {tensor.name for tensor in graph.inputs}
    has_no_mask = "input_ids" in names and "attention_mask" not in names
    unpadded = " and without padding: the graph takes no attention_mask" if has_no_mask else ""
    return [f"inputs = {{  # yours, in these shapes{unpadded}", *rows, "}"]


def build_path(path: Path) -> list[str]:
    """The lines that name a file or folder of a build as `path`."""
    return ["# in the build cache: copy it to where you deploy", f"path = {str(path)!r}"]
