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
import sys
import tempfile
from pathlib import Path

from tests.helpers.doc_pages import Block, blocks, with_doubts, with_outputs
from tests.helpers.paths import ROOT
from tests.helpers.terminal import on_a_terminal

PICTURE = re.compile(r"<!-- picture: (\S+) -->\n!\[[^]]*\]\(([^)]+)\)")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="+", type=Path, metavar="PAGE")
    parser.add_argument("--folder", type=Path, help="where the commands are run (default: a temporary folder)")
    arguments = parser.parse_args()
    os.environ["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        shutil.copytree(ROOT / "examples", folder / "examples", dirs_exist_ok=True)
        for page in arguments.pages:
            regenerate(page.resolve(), folder.resolve())
    return 0


def regenerate(page: Path, folder: Path) -> None:
    """Rewrite the outputs, pictures and rows about doubts of a page. Blocks after the last of these are not run."""
    found = blocks(page)
    outputs_at = [block.line for block in found if block.kind.endswith("output")]
    last = max([*outputs_at, last_picture(page)])
    outputs: dict[int, str] = {}
    printed = ""
    for block in (one for one in found if one.line <= last):
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


def last_picture(page: Path) -> int:
    """The line of the last mark of a picture; 0 without any."""
    lines = page.read_text(encoding="utf-8").splitlines()
    return max((number for number, line in enumerate(lines, start=1) if line.startswith("<!-- picture: ")), default=0)


def shell_output(block: Block, folder: Path) -> str:
    """What the block shows on a terminal. A command that fails ends this program."""
    shown = on_a_terminal(block.text, folder)
    if shown.code:
        sys.exit(f"{block.place}: exit code {shown.code}\n{shown.stderr}")
    return shown.text


if __name__ == "__main__":
    sys.exit(main())
