"""What llama.cpp's programs print around their results."""

from __future__ import annotations

import re
from collections.abc import Sequence

GPU = re.compile(
    r"^\s*Device \d+: (?P<cuda>[^,\n]+),|^ggml_vulkan: \d+ = (?P<vulkan>[^|\n]+?) \([^()|\n]*\) \||"
    r"^ggml_metal_init: GPU name:\s+(?P<metal>[^\n]+?)\s*$",
    re.MULTILINE,
)
"""A device as the backends print it: its name; Vulkan adds the driver's name."""
SEPARATOR = re.compile(r"[|\s:-]+")
"""The line under the headings of a Markdown table."""
QUOTE = re.compile(r"^[\s>#]+(?=\|)")
"""What stands before a table in a quoted mail or a comment."""
SPLIT = re.compile(r"-\d{5}-of-\d{5}$")
"""Part number in the file name of a split model."""


def cells_of(line: str) -> list[str]:
    """The cells of a line of a Markdown table, without emphasis; empty for any other line."""
    line = QUOTE.sub("", line).replace("**", "")
    return [cell.strip() for cell in line.strip().strip("|").split("|")] if line.lstrip().startswith("|") else []


def is_heading(lines: Sequence[str], at: int, names: set[str]) -> bool:
    """Whether a Markdown table with these columns begins at this line."""
    separator = QUOTE.sub("", lines[at + 1]) if at + 1 < len(lines) else ""
    return names <= set(cells_of(lines[at])) and bool(SEPARATOR.fullmatch(separator))


def end_of_table(lines: Sequence[str], start: int, end: int) -> int:
    """Where the heading of another table begins between a table's first line and `end`, or else `end`."""
    return next((at for at in range(start, end) if is_heading(lines, at, set())), end)


def model_name(path: str | None) -> str | None:
    """The name of the model in a file's path, without its part number."""
    name = re.split(r"[/\\]", path or "")[-1]
    return SPLIT.sub("", name.removesuffix(".gguf")) or None
