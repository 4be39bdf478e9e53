"""The page Live: it follows a real sweep for several viewers and escapes foreign contents."""

from __future__ import annotations

import dataclasses
import json
import os
import re

import pytest

from benchmarking.core.live_status import FOLDER_VARIABLE, SUFFIX, CurrentPoint, MachineProgress, PointResult
from benchmarking.core.provenance import this_process
from db.warehouse import Warehouse
from tests.helpers.sweeps import running_sweep, write_status
from tests.visualize.pages.conftest import HOSTILE, serving
from tests.visualize.pages.test_pages import DESKTOP, PHONE, opened

LIMIT_MS = 30_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder of live statuses only for the tests of this file."""
    place = tmp_path_factory.mktemp("watched")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FOLDER_VARIABLE, str(place))
        yield place


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A warehouse that a sweep writes to."""
    path = tmp_path_factory.mktemp("written") / "written.duckdb"
    Warehouse.open(path).close()
    return path


@pytest.fixture(scope="module")
def watching(folder, written):
    with serving(written) as running:
        yield running


@pytest.fixture
def emptied(folder):
    yield
    for path in folder.iterdir():
        path.unlink()


@pytest.mark.slow
def test_two_viewers_follow_a_real_sweep_until_its_run_is_stored(browser, watching, written, emptied, tmp_path):
    with (
        opened(browser, watching, viewport=DESKTOP) as page,
        opened(browser, watching, viewport=PHONE, color_scheme="dark") as phone,
    ):
        for one in (page, phone):
            one.goto("/live")
            assert one.get_by_role("heading", name="Nothing is running").is_visible()
        stored = runs(written)
        with running_sweep(tmp_path, "--save", "--db-path", str(written), call_ms=80, calls=75) as process:
            for one in (page, phone):
                one.get_by_text(re.compile("[01] of 2 points")).wait_for(timeout=LIMIT_MS)
                assert one.evaluate("document.documentElement.scrollWidth") <= one.viewport_size["width"]
            for one in (page, phone):
                one.get_by_text("1 of 2 points").wait_for(timeout=LIMIT_MS)
            assert "b1 s32" in page.get_by_role("region", name="Last results").inner_text()
            for one in (page, phone):
                one.get_by_role("heading", name="Ended").wait_for(timeout=LIMIT_MS)
                assert "finished, 2 of 2 points" in one.locator("#ended").inner_text()
            assert process.wait() == 0
        assert runs(written) == stored + 1


def runs(path):
    with Warehouse.open(path, read_only=True) as warehouse:
        return warehouse.query("SELECT count(*) AS n FROM benchmark_runs").dicts()[0]["n"]


def test_the_page_can_be_paused_with_the_keyboard(browser, watching, emptied):
    file = write_status(words="gpt2")
    with opened(browser, watching) as page:
        page.goto("/live")
        page.get_by_text("3 of 8 points").wait_for()
        page.get_by_role("button", name="Pause").focus()
        page.keyboard.press("Enter")
        asked = []
        page.on("request", lambda request: asked.append(request.url))
        rewrite(file, done=4)
        page.wait_for_timeout(2500)
        assert asked == []
        page.get_by_role("button", name="Resume").click()
        page.get_by_text("4 of 8 points").wait_for()


def rewrite(file, **changes):
    content = json.loads(file.path.read_text())
    content["status"] |= changes
    file.path.write_text(json.dumps(content))


def test_a_stopped_server_is_reported(browser, watching, emptied):
    write_status()
    context = browser.new_context(base_url=watching.url)
    page = context.new_page()
    page.goto("/live")
    page.get_by_text("3 of 8 points").wait_for()
    page.route("**/live", lambda route: route.abort())
    page.get_by_text("No connection: this is the last known state").wait_for(timeout=LIMIT_MS)
    assert page.get_by_text("3 of 8 points").is_visible()
    page.unroute("**/live")
    page.get_by_text("No connection").wait_for(state="hidden")
    context.close()


def test_contents_of_a_status_are_escaped(browser, watching, emptied):
    failed = PointResult(
        cell=HOSTILE, point=HOSTILE, launch=1, status="failed", at_s=0.0, error=HOSTILE, doubts=(HOSTILE,)
    )
    write_status(words=HOSTILE, activity=HOSTILE, command=(HOSTILE, "\x1b[2J"), folder=HOSTILE, results=(failed,))
    gone = dataclasses.replace(this_process(), created_s=1.0, since_boot_s=1.0)
    write_status(words=HOSTILE, owner=gone, folder=HOSTILE)
    with opened(browser, watching) as page:
        page.goto("/live")
        assert page.locator("h2").filter(has_text=HOSTILE).is_visible()
        assert page.locator("main img").count() == page.locator("main script").count() == 0


def test_invalid_status_files_are_named_and_links_not_followed(watching, folder, emptied):
    (folder / f"link{SUFFIX}").symlink_to("/etc/passwd")
    os.mkfifo(folder / f"pipe{SUFFIX}")
    (folder / f"large{SUFFIX}").write_text(" " * 1_000_000)
    (folder / f"fields{SUFFIX}").write_text(json.dumps({"format": "benchhouse-live", "version": 1, "status": {}}))
    text = watching.get("/live").text
    assert "root:" not in text
    for name in ("link", "pipe", "large", "fields"):
        assert re.search(rf"{name}{re.escape(SUFFIX)}", text), name


def test_a_crashed_sweep_is_shown_with_its_resume_command(watching, emptied):
    write_status(owner=dataclasses.replace(this_process(), created_s=1.0, since_boot_s=1.0), folder="~/my results")
    text = watching.get("/live").text
    assert ">crashed</b>, 3 of 8 points" in text
    assert "benchhouse run --resume --output-dir ~/&#39;my results&#39;" in text
    assert "Nothing is running" in text


def test_machines_of_a_cluster_are_listed_as_text(watching, emptied):
    machine = MachineProgress(worker=HOSTILE, host="h", device="cuda:0", state="lost", activity=HOSTILE, done=2)
    now = CurrentPoint(cell="gpt2", point="b1 s32 n4", launch=1, launches=1, phase="measure")
    file = write_status(machines=(machine, dataclasses.replace(machine, device="cuda:1")), current=now)
    text = watching.get("/live").text
    assert "<h3>Machines</h3>" in text
    assert "b1 s32 n4" not in text  # of one of them; which changes with each message
    assert HOSTILE not in text
    assert re.search(r"<td[^>]*>cuda:0</td>\s*<td[^>]*class=\"[^\"]*bad[^\"]*\"[^>]*>lost</td>", text)
    rewrite(file, state="finished")
    assert "<summary>Machines</summary>" in watching.get("/live").text


def test_the_page_does_not_read_the_warehouse(watching, written, folder, emptied):
    """Otherwise each request during a sweep would copy the database after every stored run."""
    from visualize.pages.site import views

    assert not views()["live"].reads_warehouse
    assert views()["live"].in_files is None
    assert "as of" not in watching.get("/live").text


def test_a_status_folder_writable_by_others_is_refused_on_the_page(watching, folder):
    folder.chmod(0o777)
    try:
        answer = watching.get("/live")
        assert answer.status == 500
        assert "is writable by other users" in answer.text
    finally:
        folder.chmod(0o700)
