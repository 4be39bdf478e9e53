"""The report of a batch says what was measured, what failed and what is doubtful, and escapes what others wrote."""

from __future__ import annotations

import itertools

import pytest

from benchmarking.batch import report as report_module
from benchmarking.batch import summary
from benchmarking.batch.manifest import About
from benchmarking.batch.report import content
from benchmarking.core.doubts import sentence
from benchmarking.core.errors import UsageError
from benchmarking.core.records import Readings

EVIL = "org/<script>alert(1)</script>|*x*"


@pytest.fixture
def said(make_run, tmp_path):
    """The report of two runs, one with a failed and a doubtful point and a name that is markup."""

    def make(command=("batch_benchmark", "--models", "a,b"), db_path="/x/b.duckdb"):
        good = make_run(model_id="bert-base-uncased")
        bad = make_run(model_id=EVIL, with_failed=True, with_doubtful=True)
        cells = [summary.of_run(run, tmp_path / f"{run.run_id}.json", stored=True) for run in (good, bad)]
        about = About(
            session_id="s-1", command=command, started_at="2026-01-02T03:00:00Z", db_path=db_path, report=None
        )
        batch = summary.summary(about, cells, "finished", "2026-01-02T04:00:00Z")
        return content(batch, [good.hardware, bad.hardware], Readings(values={"cpu_governor": "powersave"}))

    return make


def section(report, title):
    return next(part for part in report.sections if part.title == title)


def test_it_names_machine_cells_failures_and_doubts(said):
    report = said()
    assert len(section(report, "Machine").table.rows) == 1
    assert section(report, "Machine").items == ("cpu_governor: powersave",)
    assert [row[5] for row in section(report, "Overview").table.rows] == ["4 ok", "4 ok, 1 failed"]
    assert section(report, "Failures").items == (
        f"{EVIL} on cpu (eager, float32): b64 s512: failed: OutOfMemoryError: 64 GB asked, 16 GB there",
    )
    (doubt,) = section(report, "Doubts").table.rows
    assert doubt[:3] == ("cpu_pressure", sentence("cpu_pressure"), "1")
    assert doubt[4] == "psi_some_avg10 = 42"
    assert "session_id = 's-1'" in section(report, "Further questions").code


def test_a_cell_has_its_points_with_their_numbers(said):
    rows = section(said(), "bert-base-uncased on cpu (eager, float32)").table.rows
    assert rows[1] == ("b1 s128", "32", "31.7 .. 32.3", "32.8", "31.25", "4000", "-", "910", "-", "valid")


def test_markdown_and_html_escape_what_others_wrote(said):
    markdown, html = report_module.markdown(said()), report_module.html(said())
    assert "<script>" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;|*x*" in html
    assert r"org/\<script\>alert(1)\</script\>\|\*x\*" in markdown
    assert "http" not in html.replace("http-equiv", "")


def test_every_row_of_a_markdown_table_has_as_many_columns_as_its_head(said):
    lines = report_module.markdown(said()).splitlines()
    for before, line in itertools.pairwise(lines):
        if before.startswith("|") and line.startswith("|"):
            assert line.replace(r"\|", "").count("|") == before.replace(r"\|", "").count("|")


def test_secrets_of_the_command_are_left_out(said):
    report = said(command=("batch_benchmark", "--tag", "api_token=abc", "--description", "hf_abcdefghijkl"))
    assert section(report, "Request").code == "batch_benchmark --tag *** --description ***"


def test_without_a_database_it_says_how_to_make_one(said):
    assert "setup_benchmark_db --ingest" in section(said(db_path=None), "Further questions").paragraphs[0]


def test_another_ending_or_a_folder_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match=r"expected a file that ends with \.md or \.html"):
        report_module.check_place(tmp_path / "report.pdf")
    (tmp_path / "folder.md").mkdir()
    with pytest.raises(UsageError, match="is a folder: give a file"):
        report_module.check_place(tmp_path / "folder.md")


def test_a_report_makes_its_folder_and_takes_the_place_of_an_older_one(said, tmp_path):
    path = tmp_path / "new" / "report.md"
    older, newer = said(), said(db_path=None)
    report_module.write(older, path)
    report_module.write(newer, path)
    assert path.read_text() == report_module.markdown(newer)
    assert list(path.parent.iterdir()) == [path]
