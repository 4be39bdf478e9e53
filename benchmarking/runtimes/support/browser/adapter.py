"""Which GPU a browser gives its pages, and whether it is the requested device; and what WebNN the browser has.

A page cannot name a GPU: it requests the fast one and learns the vendor. So a device is supported when it is the only
one of its model in the machine and the adapter is its vendor's; anything else is refused rather than guessed."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from benchmarking.core.child_process import run_module
from benchmarking.core.errors import BenchhouseError
from benchmarking.core.records import Device, Json
from benchmarking.devices.support.kinds import has, kind_of, names_with, processor

SOFTWARE_WORDS = ("swiftshader", "llvmpipe", "lavapipe", "warp", "microsoft basic render")

"""Words in the architecture or description of software renderers, for browsers that do not mark them."""

FLOAT16_FEATURE = "shader-f16"


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """A page's adapter, as the page sees it."""

    vendor: str
    architecture: str
    device: str
    description: str
    is_fallback: bool
    features: tuple[str, ...]

    @classmethod
    def from_page(cls, info: Mapping[str, Any]) -> Adapter:
        """The adapter in the page's answer."""
        return cls(
            vendor=str(info.get("vendor") or ""),
            architecture=str(info.get("architecture") or ""),
            device=str(info.get("device") or ""),
            description=str(info.get("description") or ""),
            is_fallback=bool(info.get("isFallbackAdapter")),
            features=tuple(info.get("features") or ()),
        )

    @property
    def is_software(self) -> bool:
        """Whether it runs on the processor."""
        names = f"{self.architecture} {self.description}".lower()
        return self.is_fallback or any(word in names for word in SOFTWARE_WORDS)

    @property
    def label(self) -> str:
        """Its name in messages."""
        return " ".join(filter(None, (self.vendor, self.architecture, self.description))) or "an adapter without a name"

    def verified(self) -> dict[str, Json]:
        """The stored facts."""
        return {
            "adapter": {
                "vendor": self.vendor,
                "architecture": self.architecture,
                "device": self.device,
                "description": self.description,
                "is_fallback_adapter": self.is_fallback,
            },
            "adapter_features": list[Json](self.features),
            "is_simulated": self.is_software,
        }


def why_not_gpu(device: Device) -> str | None:
    """None, or why no page can use this device; on the processor it is a software adapter."""
    if has(device.type, lambda kind: kind.is_processor):
        return None
    gpus = names_with(lambda kind: kind.gpu_vendor is not None)
    if device.type not in gpus:
        software = f"on {processor().name} in software"
        return f"browsers run WebGPU on GPUs of {', '.join(gpus)}, or {software}, not on {device.type}"
    if not has(device.type, lambda kind: kind.is_gpu(device)):
        return f"browsers run WebGPU on {device.type}'s GPU, not on {device.selector}"
    if device.count > 1:
        return f"a page cannot choose among {device.count} x {device.name}: browsers give it one unnamed adapter"
    return None


def check_adapter(adapter: Adapter | None, device: Device) -> Adapter:
    """The adapter, if it is the device. Raises BenchhouseError for another or none."""
    if adapter is None:
        raise BenchhouseError(f"device {device.selector!r}: the browser gives the page no WebGPU adapter")
    kind = kind_of(device.type)
    if kind is not None and kind.is_processor:
        if not adapter.is_software:
            raise BenchhouseError(f"asked for WebGPU on the processor, but the browser's adapter is {adapter.label}")
        return adapter
    if adapter.is_software:
        raise BenchhouseError(
            f"device {device.selector!r} ({device.name}): the browser's adapter is in software ({adapter.label}); "
            "it does not see the GPU: check chrome://gpu, and the Vulkan driver on Linux"
        )
    if kind is None or adapter.vendor.lower() != kind.gpu_vendor:
        raise BenchhouseError(
            f"device {device.selector!r} ({device.name}): the browser's adapter is another vendor's: {adapter.label}"
        )
    return adapter


TIMEOUT_S = 120.0

"""Limit for starting a browser and asking it, which takes two seconds on a slow machine."""


@cache
def ask_browser(kind: str) -> Mapping[str, Any]:
    """This machine's browser on WebNN's kind of device: `accelerated`, or `whyNot`. Asked in a child process, once."""
    done = run_module("benchmarking.runtimes.support.browser.adapter", kind, limit_s=TIMEOUT_S)
    if done.exit_code is None:
        return {"whyNot": f"the browser did not answer within {TIMEOUT_S:g} s"}
    if done.exit_code != 0:
        return {"whyNot": done.last_line or f"the browser could not be asked (exit code {done.exit_code})"}
    answer: Mapping[str, Any] = json.loads(done.stdout)
    return answer


def main() -> int:
    """Ask the browser about the kind of device in the first argument; print the answer as JSON."""
    from benchmarking.runtimes.support.browser.browser import WEBNN_FLAGS, Browser, find_browser, why_no_browser
    from benchmarking.runtimes.support.browser.page import PAGE, PAGE_FILES
    from benchmarking.runtimes.support.browser.server import Site

    executable = find_browser()
    if executable is None:
        print(why_no_browser(), file=sys.stderr)
        return 1
    site = Site()
    for name in PAGE_FILES:
        site.put(name, PAGE / name)
    try:
        with Browser(executable, site.url + "page.html", WEBNN_FLAGS) as browser:
            print(json.dumps(browser.call("networksOn", sys.argv[1])))
    except BenchhouseError as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        site.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
