"""Reports what a watched process does outside its scratch folder; in every Python child, too, by PYTHONPATH.

A line of `BENCHHOUSE_FUZZ_EVENTS` for each connection, name look-up, program that is not Python, and file opened for
writing elsewhere.
"""

import os
import re
import sys

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
ELSEWHERE = ("/dev/", "/proc/")
"""Not files."""
READERS = ("lscpu", "lspci", "nvidia-smi", "rocm-smi", "sysctl", "ldconfig", "uname", "file", "fc-list")
"""Programs of the system that describe the machine."""
TURN = re.compile(r".*/benchhouse-turns-\d+/[0-9a-f]{32}\.lock")
"""The empty file by which writers of a warehouse take turns: at one place for all of a user's processes."""


def watch(scratch: str, events: str) -> None:
    """Report to the file from now on."""
    report = os.open(events, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)

    def say(*words: object) -> None:
        os.write(report, (" ".join(map(str, words)) + "\n").encode("utf-8", "backslashreplace"))

    def hook(event: str, arguments: tuple) -> None:
        match event, arguments:
            case "socket.connect", (_, (host, *_)):
                say("network: connects to", host)
            case "socket.getaddrinfo", (host, *_):
                say("network: looks up", host)
            case "open", (str() | bytes() as path, _, int() as flags) if flags & WRITING:
                name = os.path.realpath(os.fsdecode(path))
                is_elsewhere = name.startswith(ELSEWHERE) or TURN.fullmatch(name)
                if not name.startswith(scratch) and not is_elsewhere and "/__pycache__/" not in name:
                    say("write: opens", name)
            case "subprocess.Popen", (program, words, *_):
                name = os.path.basename(os.fsdecode(program or words[0]))
                if not name.startswith("python") and name not in READERS:
                    say("program: starts", words)
            case "os.system" | "os.exec" | "os.posix_spawn", (program, *_):
                say("program: starts", program)

    sys.addaudithook(hook)


if "BENCHHOUSE_FUZZ_EVENTS" in os.environ:
    watch(os.environ["BENCHHOUSE_FUZZ_SCRATCH"], os.environ["BENCHHOUSE_FUZZ_EVENTS"])
