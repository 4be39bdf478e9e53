"""Takes the pictures of pages in the README and in docs/pages.md.

    python -m tests.docs.page_pictures [--folder DIR]

They show made-up runs, those of the tests of the pages, so that they change only with the pages. Needs Chromium.
"""

from __future__ import annotations

import argparse
import io
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from benchmarking.core.metrics import DEFAULT_METRIC, JUDGED
from benchmarking.runtimes.support.browser.browser import find_browser
from db.analysis.annotations import annotate
from db.analysis.gate.alerts import raise_alerts
from db.analysis.history.changes import regressions
from db.analysis.selection import Selection
from db.warehouse import Warehouse
from tests.helpers.paths import ROOT
from tests.visualize.pages.conftest import fill, serving

if TYPE_CHECKING:
    from playwright.sync_api import FloatRect, Page

SELECTION = "model=bert-base-uncased,runtime=onnxruntime"
PICTURES = {
    "page_overview.png": "/",
    "page_trends.png": f"/trends?{urlencode({'selection': SELECTION})}",
}
LOAD_PICTURE = "page_load.png"
LOAD = "SELECT run_id FROM benchmark_runs WHERE runtime = 'vllm'"
CHARTS = ("section:has(> h2:text-is('Results by level'))", "section#requests")
"""The parts of the page of a load that are taken, from the first to the last."""
COLOURS = 96
"""Of a picture: as good to look at, and a third of the size."""
SCALE = 1.5
BEFORE = """
SELECT run_id FROM benchmark_runs WHERE runtime = 'onnxruntime' ORDER BY started_at OFFSET 11 LIMIT 1
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=ROOT / "docs" / "images")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / "benchmark_db.duckdb"
        fill(path, with_hostile=False)
        _judge(path)
        load = _add_loads(path)
        with serving(path) as server:
            for name, content in _taken(server.url, load).items():
                (arguments.folder / name).write_bytes(small(content))
                print(arguments.folder / name, (arguments.folder / name).stat().st_size)
    return 0


def _judge(path: Path) -> None:
    """What people say: an alert, and a note about a run."""
    selection = Selection.parse(f"{SELECTION},batch=1,sequence=32")
    with Warehouse.open(path) as warehouse:
        raise_alerts(warehouse, regressions(warehouse, [JUDGED[DEFAULT_METRIC]], selection=selection))
        (row,) = warehouse.query(BEFORE).dicts()
        annotate(warehouse, row["run_id"], "onnxruntime 1.31 since the next run", "mira")


def _add_loads(path: Path) -> str:
    """Those of docs/charts.md; the id of one of them."""
    from tests.docs.chart_pictures import loads  # which takes its pictures' colours from this module

    with Warehouse.open(path) as warehouse:
        warehouse.ingest_all(list(loads()))
        (row,) = warehouse.query(LOAD).dicts()
    return str(row["run_id"])


def _taken(url: str, load: str) -> dict[str, bytes]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=find_browser(), args=["--no-sandbox", "--disable-gpu"])
        taken = {}
        for name, path in {**PICTURES, LOAD_PICTURE: f"/loads/{load}"}.items():
            page = browser.new_page(
                viewport={"width": 1280, "height": 900}, device_scale_factor=SCALE, color_scheme="light", base_url=url
            )
            page.goto(path)
            for figure in page.locator("figure.chart").all():
                figure.locator("svg.marks").first.wait_for(state="attached")
            taken[name] = page.screenshot(full_page=name == LOAD_PICTURE, clip=_clip(page, name))
        browser.close()
    return taken


def _clip(page: Page, name: str) -> FloatRect | None:
    if name != LOAD_PICTURE:
        return None
    first, last = (page.locator(part).bounding_box() for part in CHARTS)
    assert first is not None
    assert last is not None
    top = first["y"] - 10
    return {"x": 0, "y": top, "width": 1280, "height": last["y"] + last["height"] - top}


def small(content: bytes) -> bytes:
    """The picture with few colours."""
    from PIL import Image

    made = io.BytesIO()
    Image.open(io.BytesIO(content)).convert("RGB").quantize(COLOURS).save(made, "PNG", optimize=True)
    return made.getvalue()


if __name__ == "__main__":
    raise SystemExit(main())
