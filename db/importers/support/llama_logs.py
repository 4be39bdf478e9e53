"""What llama.cpp's programs print around their results."""

from __future__ import annotations

import re

GPU = re.compile(
    r"^\s*Device \d+: (?P<cuda>[^,\n]+),|^ggml_vulkan: \d+ = (?P<vulkan>[^|\n]+?) \([^()|\n]*\) \||"
    r"^ggml_metal_init: GPU name:\s+(?P<metal>[^\n]+?)\s*$",
    re.MULTILINE,
)
"""A device as the backends print it: its name; Vulkan adds the driver's name."""
SEPARATOR = re.compile(r"[|\s:-]+")
"""The line under the headings of a Markdown table."""
SPLIT = re.compile(r"-\d{5}-of-\d{5}$")
"""Part number in the file name of a split model."""


def cells_of(line: str) -> list[str]:
    """The cells of a line of a Markdown table; empty for any other line."""
    return [cell.strip() for cell in line.strip().strip("|").split("|")] if line.lstrip().startswith("|") else []


def model_name(path: str | None) -> str | None:
    """The name of the model in a file's path, without its part number."""
    name = re.split(r"[/\\]", path or "")[-1]
    return SPLIT.sub("", name.removesuffix(".gguf")) or None
