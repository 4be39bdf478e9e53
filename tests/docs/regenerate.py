"""Runs the commands of pages on this machine and writes their output and pictures into them.

    python -m tests.docs.regenerate [--folder DIR] README.md docs/judging.md

The commands are run as they stand, in a folder that holds a copy of `examples/`, so pages that measure take as long as
the measuring does, and their numbers are those of this machine.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.helpers.doc_pages import Block, blocks, with_doubts, with_outputs
from tests.helpers.paths import ROOT

PICTURE = re.compile(r"<!-- picture: (\S+) -->\n!\[[^]]*\]\(([^)]+)\)")
WIDTH = 120


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="+", type=Path, metavar="PAGE")
    parser.add_argument("--folder", type=Path, help="where the commands are run (default: a temporary folder)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        shutil.copytree(ROOT / "examples", folder / "examples", dirs_exist_ok=True)
        for page in arguments.pages:
            regenerate(page.resolve(), folder.resolve())
    return 0


def regenerate(page: Path, folder: Path) -> None:
    """Rewrite the outputs of a page, and its rows about doubts. Blocks after the last output are not run."""
    found = blocks(page)
    last = max((number for number, block in enumerate(found) if block.kind.endswith("output")), default=-1)
    outputs: dict[int, str] = {}
    printed = ""
    for block in found[: last + 1]:
        if block.kind == "file":
            file = folder / block.file_name
            file.parent.mkdir(exist_ok=True)
            file.write_text(block.text, encoding="utf-8")
        elif block.kind == "sh":
            printed = shell_output(block, folder)
        elif block.kind.endswith("output"):
            outputs[block.line] = printed
    text = with_doubts(with_outputs(page, outputs))
    for source, target in PICTURE.findall(text):
        shutil.copy(folder / source, page.parent / target)
    page.write_text(text, encoding="utf-8")


def shell_output(block: Block, folder: Path) -> str:
    """What the block prints on stdout. A command that fails ends this program."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block.text],
        cwd=folder, env={**os.environ, "PATH": path, "COLUMNS": str(WIDTH)}, stdout=subprocess.PIPE, text=True,
        check=False,
    )  # fmt: skip
    if done.returncode:
        sys.exit(f"{block.place}: exit code {done.returncode}")
    return "\n".join(line.rstrip() for line in done.stdout.splitlines())


if __name__ == "__main__":
    sys.exit(main())
