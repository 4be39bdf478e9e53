"""Libraries that are imported when one of their names is first used, so that commands start without them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["Floats", "np", "onnx", "psutil", "torch"]

if TYPE_CHECKING:
    import numpy as np
    import onnx
    import psutil
    import torch
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
else:

    class _OnUse:
        """Stands for a library; its names are looked up in the library each time, so that they are never old ones."""

        def __init__(self, library: str) -> None:
            self._library = library

        def __getattr__(self, name: str) -> Any:
            # As an import statement does, this waits for another thread that is importing the library at the time.
            return getattr(__import__(self._library), name)

    np, onnx, psutil, torch = (_OnUse(library) for library in ("numpy", "onnx", "psutil", "torch"))
    Floats = Any
