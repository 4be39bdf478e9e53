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
