"""Libraries that are imported when one of their names is first used, so that commands start without them."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

__all__ = ["np", "onnx", "psutil", "torch"]

if TYPE_CHECKING:
    import numpy as np
    import onnx
    import psutil
    import torch
else:

    class _OnUse:
        """Stands for a library; its names are looked up in the library each time, so that they are never old ones."""

        def __init__(self, library: str) -> None:
            self._library = library

        def __getattr__(self, name: str) -> Any:
            return getattr(sys.modules.get(self._library) or importlib.import_module(self._library), name)

    class _Kept(_OnUse):
        """The same, with the library's names kept from the first use on: numpy is used in inner loops."""

        def __getattr__(self, name: str) -> Any:
            library = importlib.import_module(self._library)
            vars(self).update(vars(library))
            return getattr(library, name)

    np = _Kept("numpy")
    onnx = _OnUse("onnx")
    psutil = _OnUse("psutil")
    torch = _OnUse("torch")
