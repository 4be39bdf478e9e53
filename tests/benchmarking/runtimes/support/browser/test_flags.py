"""Effects of the browser's flags in the Chromium on this machine, which has no GPU."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarking.runtimes.support.browser.browser import (
    FEATURES,
    SOFTWARE_FALLBACK,
    WEBNN_FLAGS,
    Browser,
    Site,
    find_browser,
    webgpu_flags,
    why_no_browser,
    with_one_feature_list,
)
from benchmarking.runtimes.support.browser.browser_runtime import Adapter
from benchmarking.runtimes.support.browser.page import PAGE, PAGE_FILES

REAL_BROWSER = pytest.mark.skipif(why_no_browser() is not None, reason=str(why_no_browser()))


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    site = Site()
    for name in PAGE_FILES:
        site.put(name, PAGE / name)
    yield site.url + "page.html"
    site.close()


def opened(url: str, flags: tuple[str, ...]) -> Browser:
    executable = find_browser()
    assert executable is not None
    return Browser(executable, url, flags)


def test_only_linux_has_flags_for_its_gpu_and_none_is_of_the_software_renderer():
    linux = webgpu_flags(software=False, platform="linux")
    assert {"--use-angle=vulkan", "--disable-vulkan-surface", "--enable-unsafe-webgpu"} < set(linux)
    assert not [flag for flag in linux if "swiftshader" in flag]
    assert webgpu_flags(software=False, platform="win32") == webgpu_flags(software=False, platform="darwin")
    assert not [flag for flag in webgpu_flags(software=False, platform="win32") if "ulkan" in flag]


def test_the_features_of_all_flags_are_in_one():
    flags = (*WEBNN_FLAGS, *webgpu_flags(software=False, platform="linux"))
    merged = with_one_feature_list(flags)
    assert [flag for flag in merged if flag.startswith(FEATURES)] == [
        "--enable-features=WebMachineLearningNeuralNetwork,Vulkan"
    ]
    assert len(merged) == len(flags) - 1
    assert with_one_feature_list(("--a", "--b")) == ["--a", "--b"]


@REAL_BROWSER
def test_webnn_stays_on_with_the_flags_of_the_gpu(url):
    """Given as two flags, the second list of features would replace the first."""
    with opened(url, (*WEBNN_FLAGS, *webgpu_flags(software=False, platform="linux"))) as browser:
        assert browser._page.evaluate("'ml' in navigator") is True


@REAL_BROWSER
def test_float16_in_a_browser_without_such_arrays_is_refused_instead_of_comparing_bits(url):
    """-1 has larger bits than 2."""
    call = """async (type) => {
        const { callOf } = await import(new URL("calls.js", location.href));
        const data = type === "float16" ? new Uint16Array([0x4000, 0xbc00]) : new Float32Array([2, -1]);
        const logits = { type, data, dims: [1, 1, 2], dispose() {} };
        const graph = { feeds: {}, fetched: [], states: [], inputs: [], result: "logits" };
        const plan = { kind: "decoder", graphs: { decode: graph }, newTokens: 1, batchSize: 1 };
        const sessions = { decode: { run: async () => ({ logits }) } };
        const { tokens } = await callOf({}, sessions, plan, {}, () => {}).run(() => {});
        return tokens;
    }"""
    with opened(url, ()) as browser:
        assert browser._page.evaluate(call, "float32") == [[0]]
        with pytest.raises(browser._error, match="this browser has no Float16Array"):
            browser._page.evaluate(call, "float16")


@REAL_BROWSER
def test_gpu_flags_without_a_gpu_give_no_software_adapter(url):
    with opened(url, webgpu_flags(software=False, platform="linux")) as browser:
        found = browser.call("adapter")
    if found is not None:  # a machine with a GPU
        assert not Adapter.from_page(found).is_software


@REAL_BROWSER
def test_software_adapter_is_marked_if_requested(url):
    with opened(url, webgpu_flags(software=True)) as browser:
        adapter = Adapter.from_page(browser.call("adapter"))
    assert adapter.is_software
    assert adapter.verified()["is_simulated"] is True
    assert SOFTWARE_FALLBACK not in webgpu_flags(software=True)
