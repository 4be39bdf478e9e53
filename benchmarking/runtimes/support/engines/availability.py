"""Whether an installed engine can use an accelerator: its library is asked, in a child process.

A library that is asked starts the GPU's driver, which must not happen in the process that plans and supervises. The
child sees the devices that a worker would see. It runs `python -m ...availability RUNTIME` with the device as JSON on
its stdin, and prints the reason as JSON on its stdout, or null.
"""

from __future__ import annotations

import json
import os
import sys
from functools import cache

from benchmarking.core import plugins
from benchmarking.core.child_process import run_module
from benchmarking.core.errors import BenchhouseError, first_line
from benchmarking.core.records import Device, from_json, to_json
from benchmarking.devices.support.handles import parts
from benchmarking.devices.support.kinds import PACKAGE as DEVICES

TIME_LIMIT_S = 120.0
"""For the import of the library, and for a driver that initializes several GPUs."""


def why_not_available(engine: str, device: Device) -> str | None:
    """None, or why the engine's installed library cannot use an accelerator. Asked once per process."""
    return _asked(engine, json.dumps(to_json(device), sort_keys=True))


@cache
def _asked(engine: str, device: str) -> str | None:
    done = run_module(__name__, engine, input_text=device, limit_s=TIME_LIMIT_S)
    if done.exit_code is None:
        return f"{engine} did not answer within {TIME_LIMIT_S:g} s whether it can use this device"
    if done.exit_code != 0:
        ending = f"signal {-done.exit_code}" if done.exit_code < 0 else f"exit code {done.exit_code}"
        return f"{engine} cannot be asked about this device ({ending}): {done.last_line or 'nothing on stderr'}"
    answer = json.loads(done.stdout)
    return None if answer is None else str(answer)


def main() -> int:
    """Print the answer for the runtime in the first argument."""
    from benchmarking.runtimes.support.engines.runtime import GenerativeEngine

    answers = os.dup(1)
    os.dup2(2, 1)  # what libraries print is no answer
    device = from_json(Device, json.loads(sys.stdin.read()))
    engine: GenerativeEngine = plugins.load("benchmarking.runtimes", sys.argv[1])
    together = parts(device)
    why_not: str | None
    try:
        for one in together:
            plugins.load(DEVICES, device.type).watch(one, together)
        why_not = engine.why_not_here(device)
    except (BenchhouseError, ImportError, RuntimeError) as error:
        why_not = first_line(error)
    with open(answers, "w", encoding="utf-8") as stdout:
        json.dump(why_not, stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
