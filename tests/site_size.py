"""Prints the size of this environment's packages in MB, and the largest of them: `python -m tests.site_size [LIMIT]`.

Exit code 1 if they are larger than LIMIT MB. Needs nothing but Python: it measures what `pip install` of the warehouse
alone brings.
"""

from __future__ import annotations

import sys
import sysconfig
from collections import defaultdict
from pathlib import Path

SHOWN = 8


def main(arguments: list[str]) -> int:
    """Print the sizes."""
    sizes = sizes_mb(Path(sysconfig.get_path("purelib")))
    total = sum(sizes.values())
    by_size = sorted(sizes.items(), key=lambda entry: -entry[1])
    largest = ", ".join(f"{name} {size:.0f}" for name, size in by_size[:SHOWN])
    print(f"site-packages: {total:.0f} MB ({largest}, ...)")
    return int(bool(arguments) and total > float(arguments[0]))


def sizes_mb(folder: Path) -> dict[str, float]:
    """Size of each entry of the folder, with the compiled bytecode."""
    sizes: defaultdict[str, float] = defaultdict(float)
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            sizes[path.relative_to(folder).parts[0]] += path.stat().st_size / 1e6
    return sizes


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
