"""The pages in a browser, as used by a person."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.helpers.paths import FIXTURES
from tests.visualize.pages.conftest import HOSTILE, LOADED, PROFILE
from visualize.pages.elements import Cell, Grid, Heading
from visualize.pages.site import environment, views

PHONE, DESKTOP = {"width": 390, "height": 844}, {"width": 1360, "height": 900}
COMPARED = "/compare?a=runtime%3Deager&b=runtime%3Donnxruntime"
MOST_BYTES = 400_000
AXE = FIXTURES / "axe-core" / "axe.min.js"
"""Deque's accessibility checker, from npm; used only by tests."""
ALL_RULES = "{}"
DARK = "rgb(20, 23, 26)"
"""The background of the dark theme."""
CONTRAST = "{runOnly: ['color-contrast']}"
"""The only rules that the theme affects."""
FAULTS = """
axe.run(document, %s).then(({violations}) => violations
    .filter(({impact}) => impact === "serious" || impact === "critical")
    .flatMap(({id, nodes}) => nodes.map(({html, any}) => [id, html.slice(0, 200), any[0]?.message ?? ""])))
"""
TITLES = [view.title for view in views().values() if view.is_in_navigation]


@contextmanager
def opened(browser, server, **options) -> Iterator:
    """A page; asserts at the end that it had no errors, warnings and requests to other sites."""
    context = browser.new_context(viewport=options.pop("viewport", DESKTOP), base_url=server.url, **options)
    page = context.new_page()
    troubles: list[str] = []
    page.on("console", lambda m: troubles.append(m.text) if m.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("dialog", lambda dialog: (troubles.append(f"dialog {dialog.message}"), dialog.dismiss()))
    page.on("request", lambda r: None if r.url.startswith((server.url, "data:")) else troubles.append(r.url))
    page.add_init_script(
        "document.addEventListener('securitypolicyviolation', e => console.error('CSP', e.violatedDirective))"
    )
    yield page
    context.close()
    assert troubles == []


def visit(page, path):
    """Open it and wait for its charts. (The page's policy forbids Playwright's waiting for a function.)"""
    page.goto(path)
    for figure in page.locator("figure.chart").all():
        figure.locator("svg.marks").first.wait_for(state="attached")


def addresses(run_ids):
    return [
        *(view.path for view in views().values() if view.is_in_navigation),
        COMPARED,
        "/sql?sql=SELECT+runtime,count(*)+FROM+benchmark_runs+GROUP+BY+ALL",
        f"/runs/{run_ids['gpt2']}",
        f"/runs/{run_ids[HOSTILE]}",
        f"/profiles/{run_ids[PROFILE]}",
        f"/loads/{run_ids[LOADED]}",
    ]


@pytest.mark.slow
def test_every_page_fits_a_phone_and_has_no_serious_fault_in_either_theme(browser, server, run_ids):
    """Each is opened once, on a phone in the dark theme. Then it is judged by axe on a large screen, in both themes;
    and landmarks, names, and a table for every chart."""
    unnamed = (
        "[...document.querySelectorAll('select,input:not([type=hidden])')]"
        ".filter(e => !e.labels.length && !e.ariaLabel)"
    )
    with opened(browser, server, viewport=PHONE, color_scheme="dark", reduced_motion="reduce") as page:
        page.add_init_script(path=AXE)
        faults = {}
        for path in addresses(run_ids):
            visit(page, path)
            assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], path
            for box in (one.bounding_box() for one in page.locator("nav [aria-current]").all()):
                assert box["x"] >= 0, path
                assert box["x"] + box["width"] <= PHONE["width"], path
            titles = page.locator("figure.chart .role-title-text text").all_text_contents()
            assert not [text for text in titles if "…" in text], path
            page.set_viewport_size(DESKTOP)
            faults[path, "dark"] = page.evaluate(FAULTS % CONTRAST)
            page.emulate_media(color_scheme="light")
            assert page.evaluate("getComputedStyle(document.body).backgroundColor") != DARK
            faults[path, "light"] = page.evaluate(FAULTS % ALL_RULES)
            assert page.locator("h1").count() == 1, path
            assert (
                page.evaluate("document.querySelectorAll('figure.chart').length")
                == page.locator("figure.chart:has(svg.marks)").count()
            ), path
            for role in ("banner", "navigation", "main", "contentinfo"):
                assert page.get_by_role(role).count() == 1, (path, role)
            current = page.locator("nav [aria-current=page]")
            assert current.count() == (0 if path.startswith(("/runs", "/profiles/", "/loads/")) else 1)
            assert page.evaluate(f"{unnamed}.length") == 0, path
            for figure in page.locator("figure.chart").all():
                for plot in figure.locator(".plot").all():
                    assert plot.get_attribute("aria-label").endswith("; data in the table below")
                figure.locator("summary").click()
                assert figure.locator("table tbody tr").count() > 0
            page.emulate_media(color_scheme="dark")
            page.set_viewport_size(PHONE)
    assert {path: found for path, found in faults.items() if found} == {}


def test_axe_is_pinned_licensed_and_finds_a_fault(browser):
    listed = json.loads((AXE.parent / "sources.json").read_text())["files"][AXE.name]
    assert hashlib.sha256(AXE.read_bytes()).hexdigest() == listed["sha256"]
    assert "Mozilla Public License" in (AXE.parent / listed["licence_file"]).read_text()
    page = browser.new_page()
    page.add_init_script(path=AXE)
    page.goto("data:text/html,<html lang=en><title>a</title><main><h1>a</h1><input></main>")
    assert [fault[0] for fault in page.evaluate(FAULTS % ALL_RULES)] == ["label"]
    page.close()


def test_a_page_weighs_at_most_400_kb(browser, server):
    with opened(browser, server) as page:
        sizes: dict[str, int] = {}
        page.on("response", lambda r: sizes.setdefault(r.url, len(gzip.compress(r.body(), 6))))
        visit(page, COMPARED)
        assert len(sizes) > 6
        assert sum(sizes.values()) < MOST_BYTES


def test_a_filter_survives_a_reload(browser, server):
    with opened(browser, server) as page:
        visit(page, "/results")
        page.get_by_role("combobox", name="Model").select_option("gpt2")
        page.wait_for_url("**/results?model=gpt2")
        page.get_by_role("combobox", name="Device").select_option("cuda")
        page.wait_for_url("**/results?model=gpt2&device=cuda")
        assert page.locator("#found tbody tr").count() == 4
        address = page.url
        page.go_back()
        page.wait_for_url("**/results?model=gpt2")
        page.locator("#found tbody tr").nth(7).wait_for()
        assert page.locator("#found tbody tr").count() == 8
        visit(page, address)
        assert page.get_by_role("combobox", name="Device").input_value() == "cuda"
        assert page.locator("#found tbody tr").count() == 4


@pytest.mark.parametrize(
    ("path", "typed", "chosen"),
    [
        ("/compare", {"A, before": "runtime=eager", "B, after": "runtime=onnxruntime"}, "only changes"),
        ("/trends", {"Selection": "model=bert-base-uncased"}, "only with a change"),
    ],
)
def test_form_values_survive_a_reload(browser, server, path, typed, chosen):
    with opened(browser, server) as page:
        visit(page, path)
        for label, text in typed.items():
            page.get_by_label(label).fill(text)
        page.get_by_label("Metric").select_option("latency_p90_ms")
        page.get_by_label(chosen).check()
        with page.expect_navigation():
            page.locator("form.filters button[type=submit]").first.click()
        asked = parse_qs(urlsplit(page.url).query)
        assert asked["metric"] == ["latency_p90_ms"]
        assert asked["only_changes"] == ["1"]
        assert {text for values in asked.values() for text in values} >= set(typed.values())
        shown, address = page.locator("main section").first.inner_text(), page.url
        visit(page, "/")
        visit(page, address)
        assert page.locator("main section").first.inner_text() == shown
        assert page.get_by_label("Metric").input_value() == "latency_p90_ms"
        assert page.get_by_label(chosen).is_checked()
        assert {page.get_by_label(label).input_value() for label in typed} == set(typed.values())


def test_results_are_cards_on_a_phone(browser, server):
    with opened(browser, server, viewport=PHONE) as page:
        visit(page, "/results")
        assert page.get_by_role("columnheader").count() == page.locator("#found tbody tr").first.locator("td").count()
        cells = page.locator("#found tbody tr").first.locator("td:not(.nothing)")
        boxes = [cell.bounding_box() for cell in cells.all()]
        assert len(boxes) > 8
        assert boxes[0]["y"] < PHONE["height"] / 2, "the filters, which nobody has filled in, are folded"
        assert len({round(box["y"]) for box in boxes}) <= len(boxes) - 2, "short values stand side by side"
        assert all(box["x"] >= 0 and box["x"] + box["width"] <= PHONE["width"] for box in boxes)


def test_a_number_of_a_card_is_never_broken(browser, server):
    """Its heading is: "26,66" with a 7 on the next line reads as another number."""
    with opened(browser, server, viewport=PHONE) as page:
        visit(page, "/hardware")
        cell = page.locator(".cards-on-phone td.n:not(.nothing):not(.broad)").first
        cell.evaluate("cell => { cell.textContent = '26,667.123'; cell.dataset.heading = 'tokens per second'; }")
        lines = "cell => { const found = document.createRange(); found.selectNodeContents(cell);"
        assert cell.evaluate(f"{lines} return found.getClientRects().length; }}") == 1


def test_a_long_text_of_a_card_is_cut_off_after_three_lines_until_it_is_touched(browser, server):
    with opened(browser, server, viewport=PHONE) as page:
        visit(page, "/results")
        lay_out = "(cell, name) => { cell.className = name; cell.textContent = 'word '.repeat(200); }"
        cell = page.locator("#found tbody tr").first.locator("td").nth(2)
        cell.evaluate(lay_out, "broad")
        whole = cell.bounding_box()["height"]
        cell.evaluate(lay_out, "broad deep")
        assert cell.bounding_box()["height"] < whole / 3
        cell.evaluate("cell => { cell.tabIndex = 0; cell.focus(); }")
        assert cell.bounding_box()["height"] > whole / 2, "a touched text is unfolded"
        assert cell.evaluate("cell => cell.scrollHeight <= cell.clientHeight")
        template = environment().from_string("{% from 'parts.html' import table %}{{ table(grid, none, cards=true) }}")
        rows = tuple((Cell(text=name), Cell(text=text)) for name, text in (("a", "word " * 20), ("b", "word")))
        page_text = template.render(grid=Grid(headings=(Heading(text="session"), Heading(text="command")), rows=rows))
        assert page_text.count("deep ") == page_text.count('class="broad deep " tabindex="0"') == 1


def test_the_recommendation_is_on_the_first_screen_of_a_phone(browser, server):
    with opened(browser, server, viewport=PHONE) as page:
        for path, is_open in (("/recommend", False), ("/recommend?memory_mb=1e6", True)):
            page.goto(path)
            assert page.locator("details[open] .limits").count() == is_open, "a limit that is set is shown"
            if not is_open:
                assert page.locator("#found .notice").bounding_box()["y"] < PHONE["height"]
        page.set_viewport_size(DESKTOP)
        page.goto("/recommend")
        assert page.locator(".limits").is_visible()


def test_a_slider_changes_its_number_the_answer_and_the_url(browser, server):
    with opened(browser, server) as page:
        visit(page, "/recommend?model=gpt2")
        slider = page.locator("#latency_ms-slider")
        assert slider.get_attribute("aria-valuetext") == "no limit"
        slider.focus()
        page.keyboard.press("Home")
        page.wait_for_url(re.compile(r"/recommend\?model=gpt2(&workload=[^&]+)?&latency_ms="))
        limit = parse_qs(urlsplit(page.url).query)["latency_ms"]
        number = page.get_by_label("Latency at most, ms", exact=True)
        assert [number.input_value()] == limit == [slider.get_attribute("aria-valuetext")]
        page.locator("#found .notice.fine").wait_for()
        assert page.evaluate("document.activeElement.id") == "latency_ms-slider"
        address = page.url
        number.fill("")
        number.press("Tab")
        page.wait_for_url(re.compile(r"/recommend\?model=gpt2(&workload=[^&]+)?$"))
        assert slider.get_attribute("aria-valuetext") == "no limit"
        visit(page, address)
        assert [number.input_value()] == limit
        assert slider.input_value() == "0"


def test_a_note_can_be_written_with_the_keyboard(browser, own_server):
    with opened(browser, own_server) as page:
        visit(page, "/trends?selection=model%3Dbert-base-uncased")
        page.get_by_label("About").focus()
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Tab")
        page.keyboard.type("the fan was replaced")
        page.keyboard.press("Enter")
        page.wait_for_url("**#notes")
        assert "the fan was replaced" in page.locator("#notes dl").inner_text()
        page.locator("figure.chart svg.marks").first.wait_for()
        assert page.locator("figure.chart svg").get_by_text("09-").count() >= 3
        assert page.locator("figure.chart svg").get_by_text("PM").count() == 0


def test_filters_work_without_javascript(browser, server):
    with opened(browser, server, java_script_enabled=False) as page:
        page.goto("/results")
        page.get_by_role("combobox", name="Runtime").select_option("onnxruntime")
        page.get_by_role("button", name="Filter").click()
        page.wait_for_url("**/results?**")  # until it is loaded: a click does not wait for that
        assert parse_qs(urlsplit(page.url).query) == {"runtime": ["onnxruntime"]}
        assert set(page.locator("#found tbody td[data-heading=runtime]").all_text_contents()) == {"onnxruntime"}


def test_a_planted_regression_is_on_the_overview(browser, server):
    with opened(browser, server) as page:
        visit(page, "/")
        rows = page.get_by_role("region", name="Regressions, worst first").locator("tbody tr")
        assert rows.count() == 1  # the four points of one change
        said = rows.first.inner_text().replace("\n", " ")
        assert re.search(r"bert-base-uncased.*onnxruntime.*and 3 more.*\+(19|20)\.\d%", said), said
        assert page.locator(".cards .worse").count() == 4


def test_a_comparison_has_the_verdicts_of_the_command(browser, server, database, capsys):
    from db.commands.compare import main

    main(["runtime=eager", "runtime=onnxruntime", "--db-path", str(database)])
    printed = " ".join(capsys.readouterr().out.split())
    with opened(browser, server) as page:
        visit(page, COMPARED)
        summary = page.locator("main section h2").first.inner_text()
        assert summary in printed
        for row in page.get_by_role("region", name="Points of both sides").locator("tbody tr").all():
            cells = row.locator("td").all_inner_texts()
            assert " ".join(filter(None, cells)) in printed
        command = f"benchhouse compare runtime=eager runtime=onnxruntime --db-path {database}"
        assert page.locator(".copy code").inner_text() == command


def test_a_doubt_is_explained_with_advice(browser, server, run_ids):
    with opened(browser, server) as page:
        visit(page, f"/runs/{run_ids['google/vit-base-patch16-224']}")
        doubts = page.locator(".doubts").first.inner_text()
        assert "cpu pressure" in doubts
        assert "other programs were competing for the CPU" in doubts.replace("Other", "other")
        assert "close them and measure again" in doubts


def test_a_click_shows_the_samples_of_another_point(browser, server, run_ids):
    with opened(browser, server) as page:
        visit(page, f"/runs/{run_ids['gpt2']}")
        page.get_by_role("link", name="b2 s128 n4").click()
        page.wait_for_url("**?result=*")
        assert page.get_by_role("heading", name="Samples of b2 s128 n4").is_visible()


def test_the_theme_can_be_switched_and_is_kept(browser, server):
    with opened(browser, server, color_scheme="light") as page:
        visit(page, "/hardware")
        page.get_by_role("button", name="Switch to the dark theme").click()
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == DARK
        visit(page, "/results")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == DARK


def test_pages_print_whole_and_in_the_light_theme(browser, server):
    paper = {"width": 720, "height": 980}  # A4, on which Chromium shrinks what is a little wider
    with opened(browser, server, viewport=DESKTOP, color_scheme="dark") as page:
        for path in ("/hardware", "/results"):
            visit(page, path)
            page.set_viewport_size(paper)
            page.emulate_media(media="print", color_scheme="dark")
            assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
            assert page.evaluate("document.documentElement.scrollWidth") <= paper["width"], path
            wide = "[...document.querySelectorAll('td')].filter(e => e.scrollWidth > e.clientWidth + 1)"
            assert page.evaluate(f"{wide}.map(e => e.textContent)") == []
            if path == "/hardware":
                label = page.locator("figure.chart .role-axis-label text").first
                assert label.evaluate("e => getComputedStyle(e).fill") == "rgb(91, 102, 112)"
            page.emulate_media(media="screen", color_scheme="dark")
            page.set_viewport_size(DESKTOP)


def test_back_at_a_page_its_filters_are_those_of_its_address(browser, server):
    with opened(browser, server) as page:
        visit(page, "/hardware?model=gpt2")
        page.locator("select[name=model]").select_option("bert-base-uncased")
        page.get_by_role("button", name="Show").click()
        page.wait_for_url("**model=bert*")
        page.go_back()
        page.wait_for_url("**model=gpt2*")
        assert page.locator("select[name=model]").input_value() == "gpt2"
        assert page.locator("h2").first.inner_text().startswith("gpt2")


def test_a_choice_without_an_answer_leaves_the_older_one_and_says_so(browser, server):
    context = browser.new_context(base_url=server.url)
    page = context.new_page()
    page.goto("/recommend?model=gpt2")
    page.locator("#latency_ms").fill("-5")
    page.locator("#latency_ms").press("Tab")
    said = page.locator("#found .unanswered")
    said.wait_for()
    assert said.inner_text().startswith("What follows is of the choice before: latency_ms=-5: expected a number")
    context.route("**/recommend?*", lambda route: route.abort())
    page.locator("#latency_ms").fill("50")
    page.locator("#latency_ms").press("Tab")
    page.get_by_text("no answer. Is benchhouse dashboard still running?").wait_for()
    assert page.locator("#found h2").inner_text().endswith("no limits")
    context.unroute("**/recommend?*")
    page.locator("#latency_ms").fill("60")
    page.locator("#latency_ms").press("Tab")
    page.get_by_role("heading", name="latency ≤ 60 ms").wait_for()
    assert (said.count(), page.locator("#found").get_attribute("aria-busy")) == (0, None)
    assert page.locator("#said").inner_text().startswith("gpt2, "), "the answer for screen readers, not its table"
    context.close()


def test_text_grows_with_the_font_size_that_a_browser_is_set_to(browser, server):
    with opened(browser, server) as page:
        page.goto("/results")
        before = page.evaluate("getComputedStyle(document.querySelector('nav a')).fontSize")
        page.evaluate("document.documentElement.style.fontSize = '32px'")
        assert (before, page.evaluate("getComputedStyle(document.querySelector('nav a')).fontSize")) == ("14px", "28px")


def test_the_content_is_reachable_with_the_keyboard_and_focus_is_visible(browser, server):
    with opened(browser, server) as page:
        visit(page, "/")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to content"
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.closest('main') !== null")
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_the_navigation_links_to_every_view(browser, server):
    with opened(browser, server) as page:
        visit(page, "/")
        for title in TITLES:
            page.get_by_role("navigation").get_by_role("link", name=title, exact=True).click()
            page.get_by_role("heading", name=title, level=1, exact=True).wait_for()
