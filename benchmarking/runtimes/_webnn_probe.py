"""What this machine's browser says of its neural networks, asked in a process of its own before anything is planned."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from functools import cache
from typing import Any

from benchmarking.core.child_process import run_module
from benchmarking.errors import BenchhouseError

TIMEOUT_S = 120.0
"""To start a browser and to ask it; two seconds on a slow machine."""


@cache
def ask_browser(kind: str) -> Mapping[str, Any]:
    """What the browser answers to WebNN's kind of device: `accelerated`, or `whyNot`. Asked once by a process."""
    done = run_module("benchmarking.runtimes._webnn_probe", kind, limit_s=TIMEOUT_S)
    if done.exit_code is None:
        return {"whyNot": f"the browser did not answer within {TIMEOUT_S:g} s"}
    if done.exit_code != 0:
        return {"whyNot": done.last_line or f"the browser could not be asked (exit code {done.exit_code})"}
    answer: Mapping[str, Any] = json.loads(done.stdout)
    return answer


def main() -> int:
    """Ask for the kind of device in the first argument; the answer goes to stdout as JSON."""
    from benchmarking.runtimes._browser import WEBNN_FLAGS, Browser
    from benchmarking.runtimes._browser_find import find_browser, why_no_browser
    from benchmarking.runtimes._browser_page import PAGE, PAGE_FILES
    from benchmarking.runtimes._browser_server import Site

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
