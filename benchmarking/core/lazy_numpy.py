"""numpy as `np`, which is imported when it is first used, so that commands that compute nothing start without it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["np"]

if TYPE_CHECKING:
    import numpy as np
else:

    class _OnUse:
        """Looks like the module; after the first use its attributes are found as fast as the module's."""

        def __getattr__(self, name: str) -> Any:
            import numpy

            vars(self).update(vars(numpy))
            return getattr(numpy, name)

    np = _OnUse()
