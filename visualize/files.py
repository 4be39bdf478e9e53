"""Image files: their names, and writing them."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarking.core.errors import StorageError
from db.files import make_folder
from visualize.drawing.rows import Drawing, distinct_names
from visualize.drawing.style import ImageFormat, image

LONGEST_STEM = 180
"""File systems allow names of 255 bytes; the rest is for the extension and for tools that add their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A drawing as the contents of its files, without its figure."""

    name_parts: tuple[str, ...]
    details: tuple[str, ...]
    images: tuple[tuple[ImageFormat, bytes], ...]


def picture(drawing: Drawing, formats: Sequence[ImageFormat]) -> Picture:
    """The drawing in each of the formats."""
    images = tuple((name, image(drawing.figure, name)) for name in formats)
    return Picture(name_parts=drawing.name_parts, details=drawing.details, images=images)


def stems(chart: str, pictures: Sequence[Picture]) -> list[str]:
    """A file name without extension for each picture of a chart: safe on every file system, at most LONGEST_STEM long,
    and unique even if case is ignored."""
    plain = ["_".join(map(safe, (chart, *one.name_parts))) for one in pictures]
    facts = [[safe(fact) for fact in one.details] for one in pictures]
    apart = distinct_names([name.lower() for name in plain], facts, "_")
    return [_shortened(name + other[len(name) :]) for name, other in zip(plain, apart, strict=True)]


def safe(part: str) -> str:
    """A part of a file name: letters, digits and . _ = - stay, "/" becomes "--", everything else "-"."""
    return re.sub(r"[^A-Za-z0-9._=-]+", "-", part.replace("/", "--")).strip("._-") or "-"


def writable_folder(folder: Path) -> Path:
    """The folder, created if it is missing. Raises StorageError when it cannot be created or written to."""
    make_folder(folder)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise StorageError(f"cannot write to the folder {folder}: choose another with --output-dir")
    return folder


def write(chart: str, pictures: Sequence[Picture], folder: Path) -> list[Path]:
    """Write the pictures of a chart, replacing existing files, and return the paths. Raises StorageError."""
    paths = []
    for stem, one in zip(stems(chart, pictures), pictures, strict=True):
        for image_format, content in one.images:
            path = folder / f"{stem}.{image_format}"
            try:
                path.write_bytes(content)
            except OSError as error:
                raise StorageError(f"cannot write {path}: {error.strerror}: choose another --output-dir") from error
            paths.append(path)
    return paths


def _shortened(stem: str) -> str:
    if len(stem) <= LONGEST_STEM:
        return stem
    return f"{stem[: LONGEST_STEM - 11]}-{hashlib.sha256(stem.encode()).hexdigest()[:10]}"
