"""What llama.cpp's benchmarks print: Markdown tables among the lines of a log, and the devices and model above."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from db.importers.support.building import model_of_gguf
from db.importers.support.files import ForeignFile
from db.importers.support.reading import printed_lines

BACKENDS = {"CUDA": "cuda", "ROCm": "rocm", "HIP": "rocm", "Metal": "mps", "MTL": "mps", "CPU": "cpu", "BLAS": "cpu"}
SPEED = re.compile(r"(\d+(?:\.\d+)?)(?:(?:\s*±\s*|\s+[^\d\s.,]{1,4}\s+)(\d+(?:\.\d+)?))?")
"""A speed with its deviation; a terminal or a copy may have other characters for the sign, or no deviation. (A comma
is none of them: 1,955 is no speed of 1.)"""
GPU = re.compile(
    r"^[ \t\r\f\v>]*(?:[\d.]{7,20} [A-Z] )?(?:Device \d+: (?P<cuda>[^,\n]+),"
    r"|ggml_vulkan: \d+ = (?P<vulkan>[^|\n]{1,200}?) \([^()|\n]*\) \|"
    r"|ggml_metal(?:_device)?_init: GPU name:[^\S\n]++(?!MTL\d)(?P<metal>[^\n]{1,200}?)[^\S\n]*$"
    r"|ggml_metal_device_init: GPU name:[^\S\n]+MTL\d+ \((?P<MTL>[^\n]{1,200}?)\)[^\S\n]*$"
    r"|ggml_opencl: (?:selecting )?device: '(?P<opencl>[^\n]{1,200}?) \(OpenCL[^\n]*"
    r"|\|[^\S\n]*\d+\|[^\S\n]*\[[\w:]+\]\|[^\S\n]*+(?P<sycl>[^|\n]{1,200}?)[^\S\n]*\|)",
    re.MULTILINE,
)
"""A device as the backends print it: its name; Vulkan adds the driver's name, OpenCL a version."""
LISTED = re.compile(
    r"using device (?P<used>[A-Za-z]+\d*) \((?P<loading>[^\n]{1,200}?)\) (?=[(-])"
    r"|^[ \t]+(?P<listed>[A-Za-z]+\d*): (?P<name>\S[^\n]{1,200}?) \(\d+ MiB, \d+ MiB free\)",
    re.MULTILINE,
)
"""A device in the log of loading a model, or in the list of --list-devices, where its backend prints none."""
LOADED = re.compile(
    r"loaded meta data with .* from (?P<log>\S+) \(version|"
    r"(?:llama|batched|sweep)-bench\b[^\n`]{0,2000}? (?:(?:-m|--model)[ =](?P<command>[^\s`]+)|"
    r"(?:-hfr?|--hf-repo)[ =](?P<repo>[^\s`]+))|"
    r"\bbatched-bench(?:\.exe)? (?P<first>[^\s`-][^\s`]*\.gguf)|"
    r"^#+ (?P<heading>[\w.-]+/(?=[^\s/]*\d)[\w.-]+)[ \t]*$|"
    r"^Model: *https://huggingface\.co/(?P<page>[\w.-]+/[\w.-]+)",
    re.MULTILINE,
)
"""The model's file in the log of loading it or in the command, or the model in a report with tables of several."""
OF_NONE = re.compile(r"[^\s`]{0,1000}[*?,$%]|[^\n`]{0,1000}?\s(?:-m|--model|-hfr?|--hf-repo)[ =]")
"""From the model's name in a command that names several of them, or a variable."""
SEPARATOR = re.compile(r"[|\s:-]+")
"""The line under the headings of a Markdown table."""
QUOTE = re.compile(r"^[\s>#]+(?=\|)")
"""What stands before a table in a quoted mail or a comment."""


def gpus_in(text: str) -> list[tuple[str, str]]:
    """Who prints a device (`cuda` also those of ROCm), and its name."""
    if printed := [(found.lastgroup or "", found[found.lastindex or 0].strip()) for found in GPU.finditer(text)]:
        return [(printer_of(backend), name) for backend, name in printed]
    listed = {one["used"] or one["listed"]: one["loading"] or one["name"] for one in LISTED.finditer(text)}
    named = [(printer_of(place.rstrip("0123456789")), name) for place, name in listed.items()]
    return [one for one in named if one[0] != "cpu"]


def printer_of(backend: str) -> str:
    device = BACKENDS.get(backend, backend.lower())
    return {"rocm": "cuda", "mps": "metal"}.get(device, device)


def has_table(text: str, columns: set[str]) -> bool:
    """Whether a Markdown table with these columns begins in the text."""
    lines = printed_lines(text)
    return any(_is_heading(lines, place, columns) for place in range(len(lines)))


Rows = Iterator[tuple[int, dict[str, str]]]
"""The number of each row's line, from 1, and its cells by heading."""


def tables(file: ForeignFile, lines: Sequence[str], columns: set[str]) -> Iterator[tuple[str, str, Rows]]:
    """The tables with these columns, each read to its end across lines that were printed in between, which are left
    out: what was printed since the rows of the one before, what was printed after its own, and its rows."""
    starts = [place + 2 for place in range(len(lines)) if _is_heading(lines, place, columns)]
    end = 0
    for start, following in zip(starts, [*(one - 2 for one in starts[1:]), len(lines)], strict=False):
        last = next((at for at in range(start, following) if _is_heading(lines, at, set())), following)
        names, above = _cells_of(lines[start - 2]), "\n".join(lines[end:start])
        own = [number for number in range(start, last) if _row_of(lines[number], len(names))]
        end = own[-1] + 1 if own else start

        def rows(start: int = start, end: int = end, last: int = last, names: Sequence[str] = names) -> Rows:
            for number in range(start, last):
                line = lines[number].strip()
                if not line or SEPARATOR.fullmatch(QUOTE.sub("", line)):
                    continue
                if cells := _row_of(line, len(names)):
                    yield number + 1, dict(zip(names, cells, strict=True))
                elif _cells_of(line) or number < end:
                    file.leave_out(f"line {number + 1}", f"not a row of the table: {file.beginning(line)!r}")

        yield above, "\n".join(lines[end:last]), rows()


def _row_of(line: str, columns: int) -> list[str]:
    """The cells of a row of a table with so many columns, also where a program printed something (dots, its progress)
    before or after the row; empty for any other line."""
    cells = _cells_of(line)
    if len(cells) != columns and line.count("|") == columns + 1:
        cells = [cell.strip() for cell in line.replace("**", "").split("|")[1:-1]]
    return cells if len(cells) == columns else []


def _cells_of(line: str) -> list[str]:
    """The cells of a line of a Markdown table, without emphasis; empty for any other line."""
    line = QUOTE.sub("", line).replace("**", "")
    return [cell.strip() for cell in line.strip().strip("|").split("|")] if line.lstrip().startswith("|") else []


def _is_heading(lines: Sequence[str], at: int, names: set[str]) -> bool:
    """Whether a Markdown table with these columns, or one of any columns, begins at this line."""
    cells, separator = _cells_of(lines[at]), QUOTE.sub("", lines[at + 1]) if at + 1 < len(lines) else ""
    # A rule below a row makes it no heading.
    is_other = len(_cells_of(separator)) == len(cells) > 0 and not any(map(SPEED.fullmatch, cells))
    return names <= set(cells) and bool(SEPARATOR.fullmatch(separator)) and (is_other or bool(names))


def model_above(text: str) -> str | None:
    """The model that the last command, log or heading in the text names: "" for a command with a variable or several
    models, or after the command for another one; None without any."""
    model, of_commands = None, set[str | None]()
    for found in LOADED.finditer(text):
        if (kind := found.lastgroup or "") in ("log", "command", "first"):
            model = model_of_gguf(found[kind])
        else:
            model = found[kind]
        if kind in ("command", "repo", "first"):
            of_commands.add(model)
            if len(of_commands) > 1 or OF_NONE.match(text, found.start(kind)):
                model = ""
    return model
