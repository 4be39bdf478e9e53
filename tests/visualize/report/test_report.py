"""Reports written by the command: findings, tables, charts, escaping, and errors."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from benchmarking.core.load_doubts import HIGHEST_RATE, RATE_HIGH, RATE_LOW, SEARCHED
from benchmarking.core.metrics import CUSTOM_METRICS
from benchmarking.core.quality import Quality, QualityValue, without_quality
from benchmarking.core.records import Doubt, Point, dumps
from db.commands import compare
from db.warehouse import Warehouse
from tests.helpers.load import make_load
from tests.helpers.records import make_profile, make_result, make_run, out_of_memory
from visualize import visualize_benchmarks
from visualize.pages.site import STATIC
from visualize.report.report_file import SCRIPTS, STYLES

HOSTILE = "</script><img src=x onerror=alert(1)><script>alert(1)</script>`|**b**"
SESSION = {"session_id": "11111111-1111-7111-8111-111111111111"}
POINTS = {size: Point(batch_size=size, sequence_length=32) for size in (1, 2, 3)}
SMALL = {"batch_sizes": (1, 2), "sequence_lengths": (32,), **SESSION}


@pytest.fixture
def store(here):
    """Stores runs in b.duckdb and writes their run files to runs/."""

    def keep(*runs):
        (here / "runs").mkdir()
        with Warehouse.open(here / "b.duckdb") as warehouse:
            warehouse.ingest_all(runs)
        for number, run in enumerate(runs):
            (here / "runs" / f"{number}.json").write_text(dumps(run))

    return keep


@pytest.fixture
def report(here, capsys):
    """Writes a report of b.duckdb, or of --json-path, and returns its text."""

    def write(*arguments, name="r.md"):
        source = () if "--json-path" in arguments else ("--db-path", "b.duckdb")
        code = visualize_benchmarks.main(["--report", name, *source, *arguments])
        done = capsys.readouterr()
        assert (code, done.out, done.err) == (0, f"{name}\n", "")
        return (here / name).read_text()

    return write


def section(text, title):
    """Lines below a Markdown heading."""
    body = text.split(f"### {title}\n", 1)[1].split("\n### ", 1)[0]
    return [line for line in body.splitlines() if line]


def each(run, **fields):
    return replace(run, results=tuple(replace(one, **fields) for one in run.results))


def plus(run, **metrics):
    """The run with further metrics in each result."""
    return replace(run, results=tuple(replace(one, metrics={**one.metrics, **metrics}) for one in run.results))


class Texts(HTMLParser):
    """Tags and text of a page, its inline scripts and styles, and its JSON data."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.words, self.inline, self.data, self._in = [], [], [], [], None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._in = (tag, dict(attrs).get("type")) if tag in ("script", "style") else None

    def handle_endtag(self, tag):
        self._in = None

    def handle_data(self, data):
        if self._in is None:
            self.words.append(data)
        else:
            (self.data if self._in[1] == "application/json" else self.inline).append(data)


def test_the_fastest_setup_is_faster_by_the_judge_of_every_comparison(store, report, alter):
    first, second = ({**SMALL, "batch_sizes": (size,), "launches": 8} for size in (1, 2))
    other = make_run(**{**SMALL, "launches": 8}, runtime="onnxruntime")
    store(*map(alter.varied, (make_run(**first, slowdown=1.5), make_run(**second), other)))
    found = section(report(), "Fastest")
    assert found == [
        "- bert-base-uncased: onnxruntime · float32 is the fastest at batch 1, sequence 32, with 8 ms: "
        "1.5 times as fast as eager · float32 (95 % interval 1.5 to 1.5).",
        "- bert-base-uncased: undecided at batch 2, sequence 32 (16 ms): eager · float32 and onnxruntime · float32 "
        "have the same lowest median.",
    ]


def test_launches_that_did_not_alternate_have_no_fastest(store, report, alter):
    """As of a batch on a cluster: one session, in which each setup has all of its launches at once."""
    first, second = (make_run(**{**SMALL, "launches": 8}, runtime=name) for name in ("eager", "onnxruntime"))
    fast = alter.results(second, lambda one: make_result(one.point, 1.0, launches=8))

    def an_hour_later(one):
        samples = (replace(samples, started_at=samples.started_at.replace("T03", "T04")) for samples in one.samples)
        return replace(one, samples=tuple(samples))

    store(alter.varied(first), alter.results(alter.varied(fast), an_hour_later))
    (found,) = section(report(), "Fastest")
    assert "is not judged against eager · float32 (not comparable: their launches did not run in turns" in found
    assert "is the fastest" not in report(name="r.html")


def test_a_lead_that_few_rounds_cannot_prove_is_not_judged(store, report, alter):
    store(alter.varied(make_run(**SMALL)), alter.varied(make_run(runtime="onnxruntime", slowdown=0.8, **SMALL)))
    (found,) = section(report(), "Fastest")
    assert "onnxruntime · float32 has the lowest median, but is not judged against eager · float32 (" in found
    assert "8 rounds may decide" in found


def test_none_of_two_equal_medians_is_the_lowest(store, report):
    other = {**SMALL, "session_id": "2" * 8 + SESSION["session_id"][8:]}
    store(make_run(**SMALL), make_run(runtime="onnxruntime", slowdown=1.000001, **other))
    (found,) = section(report(), "Fastest")
    assert found == (
        "- bert-base-uncased: undecided at batch 1, sequence 32 (8 ms); batch 2, sequence 32 (16 ms): eager · float32 "
        "and onnxruntime · float32 have the same lowest median."
    )


def test_setups_measured_by_different_commands_have_no_fastest(store, report):
    other = {**SMALL, "session_id": "2" * 8 + SESSION["session_id"][8:]}
    store(make_run(**SMALL), make_run(runtime="onnxruntime", slowdown=0.5, **other))
    (found,) = section(report(), "Fastest")
    assert found == (
        "- bert-base-uncased: onnxruntime · float32 has the lowest median at batch 1, sequence 32, with 4 ms, "
        "against 8 ms of eager · float32; at batch 2, sequence 32, with 8 ms, against 16 ms of eager · float32; "
        "not judged: different commands measured the setups."
    )


@pytest.mark.parametrize(
    ("rival", "why"),
    [
        (make_run(runtime="onnxruntime", slowdown=0.5, launches=2, **SMALL), "no interval over at least 3 launches"),
        (
            each(make_run(runtime="onnxruntime", slowdown=0.5, **SMALL), validity="noisy"),
            "but that result is noisy",
        ),
        (
            each(make_run(runtime="onnxruntime", slowdown=0.5, **SMALL), validity="invalid"),
            "2 points cannot be ranked: only one setup has a result to rank (2 invalid left out)",
        ),
    ],
    ids=["too few launches", "noisy", "invalid"],
)
def test_a_doubtful_or_invalid_result_does_not_win(store, report, rival, why):
    store(make_run(**SMALL), rival)
    found = " ".join(section(report(), "Fastest"))
    assert why in found
    assert "is the fastest" not in found


@pytest.mark.parametrize("newer", ["failed", "invalid", "throttled"])
def test_a_newer_result_that_is_not_valid_takes_no_place_in_the_ranking_and_is_said(store, report, alter, newer):
    eager, other = make_run(**{**SMALL, "launches": 8}), make_run(**{**SMALL, "launches": 8}, runtime="onnxruntime")
    later = {**SMALL, "session_id": "2" * 8 + SESSION["session_id"][8:], "started_at": "2026-02-01T00:00:00Z"}
    bad = make_run(**{**later, "launches": 8}, runtime="onnxruntime", slowdown=4.0)
    fast = replace(other, results=tuple(make_result(one.point, 1.0, launches=8) for one in other.results))
    bad = (
        alter.results(bad, lambda one: replace(out_of_memory(one.point), point=one.point))
        if newer == "failed"
        else each(bad, validity=newer)
    )
    store(alter.varied(eager), alter.varied(fast), bad)
    text = report()
    won, note = section(text, "Fastest")
    assert "onnxruntime · float32 is the fastest at batch 1, sequence 32, with 1 ms: 8 times as fast as eager" in won
    assert re.fullmatch(
        "- 2 of 4 points are not of the newest result: a newer result,( 32 ms,)? of 2026-02-01 00:00 UTC, "
        f"(is )?{newer}, and 1 more; the newest valid one is shown.",
        note,
    )
    assert f"results: 6 (4 valid, 2 {newer})" in text, "the newest results are listed, too"
    assert "onnxruntime at float32 is the fastest" in report(name="r.html")
    assert "onnxruntime · float32 is the fastest" in " ".join(section(report("--json-path", "runs"), "Fastest"))


def test_a_simulated_result_never_wins_and_is_marked(store, report):
    fast = make_run(device="null", runtime="null", slowdown=0.5, **SMALL)
    simulated = replace(fast.cell.device, simulated=True)
    fast = replace(fast, cell=replace(fast.cell, device=simulated))
    fast = replace(fast, hardware=replace(fast.hardware, device=simulated))
    store(make_run(**SMALL), fast)
    text = report()
    assert "2 simulated left out" in " ".join(section(text, "Fastest"))
    assert "(null, simulated)" in text
    assert any("Simulated results" in line for line in section(text, "Next steps"))


def test_memory_and_energy_are_named_as_readings_without_an_interval(store, report):
    eager = plus(make_run(**SMALL), energy_soc_j_per_call=4.0, memory_peak_rss_infer_mb=1000.0)
    other = plus(make_run(runtime="onnxruntime", **SMALL), energy_soc_j_per_call=1.0, memory_peak_rss_infer_mb=700.0)
    store(eager, other)
    text = report()
    assert section(text, "Smallest") == [
        "- bert-base-uncased: onnxruntime · float32 has the lowest reading of peak resident memory of the process: "
        "700 MB at batch 1, sequence 32, against 1,000 MB for eager · float32; "
        "700 MB at batch 2, sequence 32, against 1,000 MB for eager · float32.",
        "- Readings of peak memory have no interval; they describe only these runs.",
    ]
    assert section(text, "Most efficient")[0] == (
        "- bert-base-uncased: onnxruntime · float32 has the lowest reading of energy of the whole chip: "
        "1 J per item at batch 1, sequence 32, against 4 J per item for eager · float32; "
        "0.5 J per item at batch 2, sequence 32, against 2 J per item for eager · float32."
    )


def test_missing_values_have_a_reason(store, report):
    store(make_run(with_failed=True, **SMALL))
    text = report()
    assert section(text, "Most efficient") == ["- No ranked result has energy readings: not supported."]
    assert "OutOfMemoryError: 64 GB asked, 16 GB there" in text
    assert section(text, "Next steps")[0].startswith("- Not measured: 1 failed.")


def test_readings_of_simulated_devices_are_not_called_missing(store, report):
    run = make_run(**SMALL)
    store(replace(run, cell=replace(run.cell, device=replace(run.cell.device, simulated=True))))
    text = report()
    assert section(text, "Smallest") == ["- No result can be ranked, so no reading of peak memory is the lowest."]
    assert "From three launches on, its 95 % interval covers the typical launch" in text


def test_each_run_has_a_row_and_equal_failures_are_listed_once(store, report):
    def failed(one):
        return replace(one, status="failed", validity=None, error="OutOfMemoryError: too big", metrics={}, samples=())

    half = make_run(runtime="onnxruntime", **SMALL)
    broken = make_run(runtime="openvino", **SMALL)
    store(
        make_run(**SMALL),
        replace(half, results=(half.results[0], failed(half.results[1]))),
        replace(broken, results=tuple(map(failed, broken.results))),
    )
    text = report()
    _, _, *rows = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in section(text, "Runs")]
    assert sorted(row[1:8] for row in rows) == [
        ["eager · float32", "encoder-only", "109 M", "2 ok", "4,000 tokens/s (b1 s32)", "valid", "3.3"],
        ["onnxruntime · float32", "encoder-only", "109 M", "1 ok, 1 failed", "4,000 tokens/s (b1 s32)", "valid", "3.3"],
        ["openvino · float32", "encoder-only", "109 M", "2 failed", "-", "-", "3.3"],
    ]
    assert {row[8] for row in rows} == {"10 min"}
    assert "- openvino · float32, failed: batch 1, sequence 32; batch 2, sequence 32: OutOfMemoryError: too big" in text
    assert "- runs: 3, by one command in 10 min" in text


def test_a_setup_without_a_stated_precision_and_a_day_are_not_said_twice(store, report):
    later = make_load(precision="unknown", rates=(2.0,), started_at="2026-03-01T18:30:00Z", session_id="2" * 32)
    store(make_load(precision="unknown", rates=(1.0,), started_at="2026-03-01T12:00:00Z"), later)
    text = report()
    assert "some-engine · unknown" not in text
    assert "| some-engine |" in text
    assert "- measured: 2026-03-01 12:00 to 18:30 UTC\n" in text


def test_a_machine_that_no_file_states_is_one_word_and_no_dashes(store, report):
    run = make_run(**SMALL)
    nowhere = replace(run.cell.device, type="unknown", selector="unknown", name=None)
    hardware = replace(run.hardware, device=nowhere, cpu_model=None, cpu_cores=None, cpu_threads=None)
    store(replace(run, cell=replace(run.cell, device=nowhere), hardware=hardware))
    (row,) = [line for line in section(report(), "Hardware and software") if line.startswith("| not stated")]
    assert "- / -" not in row


def test_doubts_list_points_and_advice(store, report):
    doubt = Doubt(kind="cpu_pressure", severity="noisy", evidence={"psi_some_avg10": 42.0})
    noisy = each(make_run(runtime="onnxruntime", **SMALL), validity="noisy", doubts=(doubt,))
    store(noisy, make_run(**SMALL))
    places = "bert-base-uncased, onnxruntime · float32, b1 s32; bert-base-uncased, onnxruntime · float32, b2 s32"
    sentence = "Other programs were competing for the CPU before the timed calls; close them and measure again."
    assert section(report(), "Doubts") == [f"- cpu pressure ({places}): {sentence} (psi some avg10 42)"]
    everywhere = report("runtime=onnxruntime")
    assert section(everywhere, "Doubts") == [f"- cpu pressure (all 2 results): {sentence} (psi some avg10 42)"]


def test_each_result_links_to_its_method_and_command(store, report):
    store(make_run(**SMALL), make_run(model_id="gpt2", family="decoder-only", batch_sizes=(1,)))
    page = report(name="r.html")
    links = set(re.findall(r'href="(#method-\d+)"', page))
    assert links == {"#method-1", "#method-2"}
    for link in links:
        assert f'id="{link[1:]}"' in page
    words = " ".join(Texts(page).words)
    assert "run_hardware_benchmark --model-id gpt2" in words
    assert "benchhouse 0.1.0" in words
    assert "Test CPU 3000" in words
    assert "2.13.0" in words


def test_run_files_give_the_same_report_as_the_database(store, report, here):
    store(make_run(**SMALL), make_run(runtime="onnxruntime", slowdown=0.5, **SMALL))
    stored = report()
    (here / "b.duckdb").unlink()
    from_files = report("--json-path", "runs")
    assert from_files.replace("from: 2 files", "") == stored.replace("from: b.duckdb", "")
    assert not list(here.glob("*.duckdb"))


def test_only_selected_results_are_reported(store, report):
    store(make_run(**SMALL), make_run(model_id="gpt2", family="decoder-only"))
    text = report("model=bert-base-uncased,batch=1")
    assert "- results: 1 (1 valid)" in text
    assert "gpt2" not in text
    assert "gpt2" not in report("--model-id", "bert-base-uncased")


def sessions(count):
    """A history of both runtimes, for verdicts between sessions."""
    for day in range(count):
        when = f"2026-02-{day + 1:02d}T03:00:00Z"
        wobble = 1 + (day * 7 % 5 - 2) / 200
        for runtime, slowdown in (("eager", 1.0), ("onnxruntime", 0.5)):
            yield make_run(
                runtime=runtime, slowdown=slowdown * wobble, started_at=when, finished_at=when, batch_sizes=(1, 2),
                sequence_lengths=(32,), session_id=f"{day + 1:08d}-1111-7111-8111-111111111111",
            )  # fmt: skip


def test_a_comparison_has_the_verdicts_of_the_command(store, report, capsys):
    store(*sessions(8))
    sides = ("runtime=eager", "runtime=onnxruntime")
    assert compare.main([*sides, "--json", "--db-path", "b.duckdb"]) == 0
    found = json.loads(capsys.readouterr().out)["findings"]
    expected = [(one["point"], one["judgement"]["verdict"]) for one in found]
    assert {verdict for _, verdict in expected} == {"faster"}
    text = report("--compare", *sides)
    rows = [line.split(" | ") for line in section(text, "Compared") if line.startswith("| b")]
    verdict = next(line for line in section(text, "Compared") if line.startswith("| point")).split(" | ")
    assert [(row[0].strip("| "), row[verdict.index("verdict")]) for row in rows] == expected
    assert "benchhouse compare runtime=eager runtime=onnxruntime" in text
    assert "### Fastest" not in text, "a comparison has verdicts, not a second kind of ranking"
    assert ">faster<" in report("--compare", *sides, name="c.html")


def test_both_sides_of_a_comparison_are_in_the_table(store, report):
    first, second = make_run(**SMALL), make_run(**{**SMALL, "session_id": "2" * 8 + SESSION["session_id"][8:]})
    store(first, second)
    text = report("--compare", first.run_id, second.run_id)
    sides = [line.split(" | ")[0].strip("| ") for line in section(text, "bert-base-uncased") if line.startswith("| ")]
    assert sorted(sides[2:]) == ["A", "A", "B", "B"]


CONTROLS = "\x1b[31m\x07\x9b\u202egnp\u2066x\u2069"


@pytest.mark.parametrize("name", ["r.html", "r.md"])
def test_control_characters_and_changes_of_direction_are_shown_as_escapes(store, report, name):
    store(
        make_run(model_id=f"m{CONTROLS}", **SMALL),
        each(make_run(**SMALL), status="failed", error=CONTROLS, metrics={}),
    )
    text = report(name=name)
    assert set(CONTROLS) & set(text) == set("[31mgnpx")
    assert "m\\x1b" in text


@pytest.mark.parametrize("name", ["r.html", "r.md"])
def test_html_and_scripts_in_names_are_escaped(store, report, name):
    store(make_run(model_id=HOSTILE, **SMALL), each(make_run(**SMALL), status="failed", error=HOSTILE, metrics={}))
    text = report(name=name)
    if name.endswith("html"):
        page = Texts(text)
        scripts = [given for tag, given in page.tags if tag == "script"]
        assert [given for given in scripts if given not in ({}, {"type": "application/json"})] == []
        assert "img" not in {tag for tag, _ in page.tags}
        assert HOSTILE in page.words
        assert all(json.loads(part)["$schema"].endswith("v6.json") for part in page.data)
    else:
        commands = re.findall(r"^(`{3,})sh\n(.*?)\n\1$", text, re.S | re.M)
        assert any(HOSTILE in command for _, command in commands)
        outside = re.sub(r"^(`{3,})sh\n.*?\n\1$", "", text, flags=re.S | re.M)
        assert "<img" not in outside
        assert "**b**" not in outside


def test_the_policy_allows_only_the_embedded_scripts_and_style(store, report):
    store(make_run(**SMALL))
    page = Texts(report(name="r.html"))
    policy = next(given["content"] for tag, given in page.tags if given.get("http-equiv") == "Content-Security-Policy")
    digests = {f"'sha256-{base64.b64encode(hashlib.sha256(one.encode()).digest()).decode()}'" for one in page.inline}
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert set(rules["script-src"].split()) | set(rules["style-src"].split()) == digests
    assert rules["default-src"] == "'none'"
    assert "unsafe" not in policy
    loading = ("src", "srcset", "style", "onerror", "onload", "onclick")
    assert [given for _, given in page.tags for name in loading if name in given] == []
    hrefs = [given["href"] for _, given in page.tags if "href" in given]
    assert [one for one in hrefs if not one.startswith(("#", "data:"))] == []


@pytest.mark.parametrize("name", [*SCRIPTS, *STYLES])
def test_embedded_assets_do_not_close_their_element(name):
    text = (STATIC / name).read_text().lower()
    assert [end for end in ("</script", "</style", "<!--", "\r") if end in text] == []


def test_the_first_screen_has_the_findings_and_one_chart_and_the_rest_is_folded(store, report):
    store(make_run(**SMALL), make_run(runtime="onnxruntime", slowdown=0.5, **SMALL))
    page = report(name="r.html")
    figures = re.findall(r'<figure class="chart">.*?</figure>', page, re.S)
    assert "<strong>Latency by hardware: bert-base-uncased</strong>" in figures[0]
    assert page.index("<h2>Summary</h2>") < page.index(figures[0]) < page.index("<h2>Runs</h2>")
    more = page[page.index('<details class="more">') :]
    assert all(figure in more for figure in figures[1:])
    assert len(figures) > 3
    for figure in figures:
        assert figure.count("<tr>") > 1, "a table of its values"


def test_the_first_chart_of_a_single_batch_size_is_one_that_it_has(store, report):
    store(make_run(batch_sizes=(4,), sequence_lengths=(32,)))
    page = report(name="r.html")
    titles = [figure.partition("</")[0] for figure in page.split('<figure class="chart">')[1:]]
    assert titles
    assert not any("batch size" in title for title in titles)
    assert '<details class="more">' not in page, "the first is open"


def test_results_of_a_load_are_in_the_order_of_their_rates(store, report):
    store(make_load(rates=(1.0, 2.0, 16.0), **SESSION))
    page = report(name="r.html")
    table = page[page.index("<caption>Results</caption>") :] if "<caption>Results" in page else page
    places = [table.index(f"{level}, s32 n2") for level in ("1 request/s", "2 requests/s", "16 requests/s")]
    assert places == sorted(places)


@pytest.mark.parametrize(("lengths", "is_folded"), [(20, False), (21, True)])
def test_a_long_table_of_results_is_folded(store, report, lengths, is_folded):
    store(make_run(batch_sizes=(1,), sequence_lengths=tuple(range(16, 16 * lengths + 1, 16))))
    assert (f"<details><summary>{lengths} results</summary>" in report(name="r.html")) is is_folded


@pytest.mark.parametrize(("models", "folded"), [(6, 0), (7, 6)])
def test_of_many_models_only_the_first_is_open(store, report, models, folded):
    store(*(make_run(model_id=f"model-{number}", **SMALL) for number in range(models)))
    page = report(name="r.html")
    assert (
        len(re.findall(r"<details><summary><h2>model-\d</h2> <span class=\"muted\">feature-extraction", page)) == folded
    )
    assert len(re.findall(r"<h2>model-\d</h2>", page)) == models


def test_load_tests_are_drawn_by_level_with_separate_loops(store, report):
    store(make_load(rates=(1.0, 4.0), **SESSION), make_load(concurrency=(2, 8), **SESSION))
    page = report(name="r.html")
    assert page.count('<span class="subtitle">Latency under load') == 2
    for words in ("open loop: scheduled requests", "closed loop: fixed number in flight"):
        drawn = re.findall(f'<span class="subtitle">[^<]*{words}', page)
        assert len(drawn) == 2, "latency, and throughput against interactivity"
    assert page.count("Test CPU (server) · some-engine · float32</li>") == 4


def test_a_level_of_which_every_request_failed_misses_the_limits(store, report):
    run = make_load(rates=(1.0, 2.0, 4.0), **SESSION)
    sent = {"requests_sent": 100.0}
    low, middle, high = (replace(one, metrics={**one.metrics, **sent, "goodput_share": 1.0}) for one in run.results)
    failed = replace(middle, status="failed", error="none of 100 requests succeeded", metrics=sent, validity=None)
    store(replace(run, results=(low, failed, high)))
    (found,) = section(report(name="r.md"), "Under load")
    assert "99% of the requests were within the limits up to 1 request/s" in found


def test_the_findings_of_loads_are_their_highest_rates_without_advice_on_launches(store, report):
    many = make_load(engine="other", rates=(2.0,), metrics={"requests_sent": 200.0}, **SESSION)
    store(make_load(rates=(1.0, 4.0), **SESSION), many)
    text = report(name="r.md")
    limits = "99% of the requests were within the limits"
    assert sorted(line.split(": ", 2)[2] for line in section(text, "Under load")) == [
        f"at most 2 requests/s answered at 2 requests/s; {limits} at no level.",
        f"at most 4 requests/s answered at 4 requests/s; whether {limits} is unknown (2 of 2 levels not judged).",
    ]
    assert "### Fastest" not in text
    assert section(text, "Next steps") == ["- No action needed: every result is valid."]
    assert "A load test sends requests to a running server" in text
    assert "fresh processes" not in text


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (
            {HIGHEST_RATE: 1.5, RATE_LOW: 1.25, RATE_HIGH: 3.0},
            "the highest rate within the limits is 1.5 requests/s (95 % interval 1.25 to 3); deploy for up to 1.25 "
            "requests/s, the lower end: at the rate itself, chance decides; at most 4 requests/s answered at 4 "
            "requests/s.",
        ),
        ({}, "no rate is known: not found: too few; at most 4 requests/s answered at 4 requests/s."),
    ],
)
def test_the_finding_of_a_search_is_its_answer_not_what_its_short_levels_tell(store, report, found, words):
    load = make_load(rates=(1.0, 4.0), **SESSION)
    search = replace(
        load.results[0], result_id="search", point=replace(load.results[0].point, axes={}),
        metrics={**load.results[0].metrics, **found} if found else {}, extra={"load": {SEARCHED: [1.0, 16.0]}},
        **({} if found else {"status": "failed", "error": "not found: too few"}),
    )  # fmt: skip
    store(replace(load, results=(*load.results, search)))
    (shown,) = section(report(name="r.md"), "Under load")
    assert words in shown


def test_a_search_that_found_none_hides_no_answer_for_requests_of_another_length(store, report):
    load, searches = make_load(rates=(1.0, 4.0), **SESSION), []
    for length, found in ((32, {HIGHEST_RATE: 1.5, RATE_LOW: 1.25, RATE_HIGH: 3.0}), (64, {})):
        point = replace(load.results[0].point, axes={}, sequence_length=length)
        search = replace(
            load.results[0], result_id=f"search {length}", point=point, extra={"load": {SEARCHED: [1.0, 16.0]}},
            metrics={**load.results[0].metrics, **found} if found else {},
            **({} if found else {"status": "failed", "error": "not found: too few"}),
        )  # fmt: skip
        searches.append(search)
    store(replace(load, results=(*load.results, *searches)))
    (shown,) = section(report(name="r.md"), "Under load")
    assert "s32 n2: the highest rate within the limits is 1.5 requests/s" in shown
    assert "s64 n2: not found: too few; at most 4" in shown


@pytest.mark.parametrize(
    ("levels", "words"),
    [  # (requests, share, kinds of doubt) at 1, 2, ... requests/s
        (
            [(100, 1.0), (100, 0.99), (100, 0.5)],
            "at 3 requests/s; 99% of the requests were within the limits up to 2 re",
        ),
        ([(100, 1.0), (50, 1.0)], "at 2 requests/s; 99% of the requests were within the limits up to 1 request/s."),
        ([(100, 0.5), (100, 1.0)], "at 2 requests/s; 99% of the requests were within the limits at no level."),
        ([(6, 1.0), (100, 0.33)], "the limits at no level that was judged (1 of 2 were not)."),
        (  # a disturbance of the lower one, which the load test pools with the higher one
            [(300, 0.97), (3000, 1.0)],
            "up to 2 requests/s, the highest measured; 1 request/s pooled: with the requests of higher rates",
        ),
        (
            [(100, 1.0), (100, 1.0, "unsteady")],
            "at most 1 request/s answered at 1 request/s; 99% of the requests were within",
        ),
        ([(100, 1.0), (100, 1.0, "over_saturated")], "within the limits up to 1 request/s."),
        ([(100, 0.9, "late_generator"), (9, 0.5, "late_generator")], ": no rate is known: all 2 levels are invalid."),
        ([(100, 0.9, "late_generator")], ": no rate is known: its only level is invalid."),
        ([(100, None, "late_generator"), (100, None, "short_window")], "all 2 levels are invalid or unsteady."),
        # Latencies count from the schedule, so what a late generator sent met the limits all the same.
        (
            [(100, 1.0, "late_generator"), (9, 0.5, "late_generator")],
            "some-engine · float32: 99% of the requests were within the limits up to 1 request/s.",
        ),
        (
            [(100, 1.0, "late_generator"), (100, 1.0, "late_generator")],
            "99% of the requests were within the limits up to 2 requests/s, the highest measured.",
        ),
        (
            [(100, 1.0, "unsteady")],
            "some-engine · float32: 99% of the requests were within the limits up to 1 request/s.",
        ),
    ],
)
def test_the_limits_hold_in_a_report_by_the_rule_of_the_load_test(store, report, levels, words):
    """More answers than were offered are the chance of a short window, and a few requests tell nothing."""
    run = make_load(rates=tuple(map(float, range(1, len(levels) + 1))), **SESSION)
    results = []
    for one, (count, share, *kinds) in zip(run.results, levels, strict=True):
        severity = "invalid" if "late_generator" in kinds else "noisy"
        doubts = tuple(Doubt(kind=kind, severity=severity, evidence={}) for kind in kinds)
        metrics = {**one.metrics, "requests_sent": float(count), "goodput_share": share}
        metrics = {name: value for name, value in metrics.items() if value is not None}
        results.append(replace(one, metrics=metrics, doubts=doubts, validity=severity if doubts else "valid"))
    store(replace(run, results=tuple(results)))
    (found,) = section(report(name="r.md"), "Under load")
    assert words in found


def test_the_load_table_leaves_out_interval_ends(store, report):
    custom = {name: {"unit": "ms", "better": None} for name in ("ttft_p95_ms", "ttft_p95_ci_low_ms")}
    run = make_load(rates=(1.0,), metrics=dict.fromkeys(custom, 5.0), **SESSION)
    results = [replace(one, extra={**one.extra, CUSTOM_METRICS: custom}) for one in run.results]
    store(replace(run, results=tuple(results)))
    text = report(name="r.md")
    assert "ttft p95 (ms)" in text
    assert "ci low" not in text


def test_long_markdown_tables_are_cut_and_say_so(store, report):
    many = [make_result(replace(make_run(**SMALL).results[0].point, batch_size=size), 5.0 + size)
            for size in range(1, 71)]  # fmt: skip
    store(replace(make_run(**SMALL), results=tuple(many)))
    assert "10 more rows are in the HTML report." in report()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--report", "r.pdf"], "--report r.pdf: expected a name that ends with .html or .md"),
        (["--report", "no/r.html"], "cannot write to no: No such file or directory: choose another path"),
        (["--report", "r.md", "--chart", "roofline"], "--report has its own charts"),
        (["--report", "r.md", "--model-id", "bert"], "no model 'bert' in b.duckdb"),
        (["--report", "r.md", "batch=64"], "b.duckdb has no results of batch=64"),
        (["--report", "r.md", "nonsense"], "'nonsense' is not a selection"),
        (["--compare", "runtime=eager", "latest"], "--compare is part of a report: add --report FILE.html"),
        (["--across", "runtime"], "--across applies to comparisons: add --compare A B"),
        (["--report", "r.md", "--metric", "load_time_s"], "--metric applies to charts over time and to comparisons"),
        (["--report", "r.md", "--compare", "latest", "runtime=tvm"], "b.duckdb: B (runtime=tvm) selects no results"),
        (["--report", "r.md", "--compare", "latest", "runtime=tvm"], "; no runtime 'tvm' is stored: there are eager"),
        (["--report", "r.md", "--compare", "latest", "latest", "--metric", "speed"], "unknown metric 'speed'"),
        (["--report", "r.md", "batch=1", "--compare", "a=b", "c=d"], "--compare has selections of its own"),
    ],
)
def test_invalid_input_is_one_line_and_writes_nothing(store, here, capsys, arguments, message):
    store(make_run(**SMALL))
    try:
        code = visualize_benchmarks.main([*arguments, "--db-path", "b.duckdb"])
    except SystemExit as end:
        code = end.code
    done = capsys.readouterr()
    assert code in (1, 2)
    assert done.out == ""
    assert message in done.err
    assert len(done.err.splitlines()) == 1
    assert sorted(path.name for path in here.iterdir()) == ["b.duckdb", "runs"]


def test_too_many_results_are_refused(store, here, capsys, monkeypatch):
    monkeypatch.setattr("visualize.report.content.MOST_RESULTS", 1)
    store(make_run(**SMALL))
    assert visualize_benchmarks.main(["--report", "r.md", "--db-path", "b.duckdb"]) == 2
    assert "2 results are selected: a report has at most 1, narrow the selection" in capsys.readouterr().err


def test_it_opens_from_disk_without_errors_requests_or_policy_violations(store, report, here, browser):
    store(make_run(model_id=HOSTILE, **SMALL), make_run(**SMALL), make_run(runtime="onnxruntime", launches=2, **SMALL))
    report(name="r.html")
    report("--compare", "runtime=eager", "runtime=onnxruntime", name="c.html")
    for name in ("r.html", "c.html"):
        assert opened(browser, (here / name).as_uri()) == []


def opened(browser, address):
    """Errors, requests and policy violations while a report is opened, hovered and printed."""
    page = browser.new_page()
    troubles: list[str] = []
    page.on("console", lambda m: troubles.append(m.text) if m.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("dialog", lambda dialog: (troubles.append("dialog"), dialog.dismiss()))
    page.on("request", lambda request: None if request.url in (address, "data:,") else troubles.append(request.url))
    page.add_init_script(
        "document.addEventListener('securitypolicyviolation', e => console.error('CSP', e.violatedDirective))"
    )
    page.goto(address)
    page.locator("details.more").first.evaluate("it => it.open = true")
    page.locator("details.more figure.chart svg.marks").first.wait_for(state="attached")
    page.wait_for_function(
        "[...document.querySelectorAll('.plot')].every(it => !it.clientWidth || it.parentElement.dataset.drawn)"
    )
    assert page.locator("figure.chart[data-drawn]").count() >= 3
    page.locator("figure.chart svg .mark-symbol.role-mark path >> visible=true").first.hover()
    assert re.search("batch|b1 s", page.locator("#vg-tooltip-element").inner_text())
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    page.close()
    return troubles


def test_it_is_readable_without_javascript(store, report, here, browser):
    store(make_run(**SMALL))
    report(name="r.html")
    context = browser.new_context(java_script_enabled=False, color_scheme="dark")
    page = context.new_page()
    page.goto((here / "r.html").as_uri())
    assert page.locator("noscript p, p.notice").first.inner_text().startswith("Charts need JavaScript")
    assert page.locator("figure.chart details").count() >= 3
    assert page.locator("#summary").is_visible()
    context.close()


def test_profiles_of_the_same_models_and_devices_are_drawn(here, store, report):
    run = make_run(**SMALL)
    store(run)
    assert "Where a call spends its time" not in report(name="without.html")
    with Warehouse.open(here / "b.duckdb") as warehouse:
        for factor in range(1, 4):
            warehouse.ingest_profile(make_profile(float(factor), run=replace(run, results=()), point=POINTS[factor]))
        other = make_run(model_id="gpt2", family="decoder-only")
        warehouse.ingest_profile(make_profile(9.0, run=replace(other, results=())))
    text = report(name="with.html")
    assert text.count("<strong>bert-base-uncased: attention takes") == 3
    points = [setup.partition("float32, ")[2] for setup in re.findall("<summary>(.+, sequence 32)</summary>", text)]
    assert sorted(points) == [f"batch {size}, sequence 32" for size in POINTS]
    assert "gpt2" not in text


def test_the_quality_of_each_setup_has_its_interval_and_missing_ones_their_reason(store, report):
    known = Quality(
        inputs="i",
        values={"kl_divergence": QualityValue(value=0.01, low=0.009, high=0.011)},
        missing={"perplexity": "not_supported: no `tokenizer`"},
    )
    runs = (make_run(**SMALL), make_run(**{**SMALL, "precision": "int8"}))
    store(replace(runs[0], quality=known), replace(runs[1], quality=without_quality("not_supported: no logits")))
    text = report()
    assert "| setup | KL (nats) |" in text
    (line,) = (line for line in text.splitlines() if "0.01 (0.009 .. 0.011)" in line)
    assert "float32" in line
    assert "no perplexity: no \\`tokenizer\\`" in text
    assert "int8: quality: not measured: no logits" in text
    assert "0.01 (0.009 .. 0.011)" in report(name="r.html")


def test_a_file_that_states_no_date_was_not_measured_when_it_was_last_written(store, report):
    run = make_run(**SMALL)
    undated = tuple(replace(result, doubts=(Doubt(kind="undated", severity="info"),)) for result in run.results)
    store(replace(run, results=undated))
    text = report()
    assert "measured: not stated" in text
    assert "started: file of 2026-01-02" in text
