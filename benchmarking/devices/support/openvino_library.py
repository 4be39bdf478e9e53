"""Importing OpenVINO without what it has beside inference."""

from __future__ import annotations

import importlib
import sys
from typing import Any

TELEMETRY = "openvino_telemetry"


def import_openvino() -> Any:
    """The module openvino. Raises ImportError where it is not installed.

    Importing it, converting with it and compressing weights with nncf each report their use to their makers, from
    threads of their own, unless the package that does so cannot be imported: then a stub takes its place. A measuring
    process is to have no such threads, and nobody is told what is measured here.
    """
    sys.modules.setdefault(TELEMETRY, None)  # type: ignore[arg-type]
    return importlib.import_module("openvino")
