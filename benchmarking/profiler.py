"""The script `profiler`, as a file and as a module, with its class: `benchhouse profile` with the defaults of ML
Runtime Profiler's script of this name."""

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

if __package__ in (None, ""):  # run as a file: the module path starts at the repository, not at the folder of this file
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarking.commands import profile
from benchmarking.commands.profile import MLRuntimeProfiler
from benchmarking.core.command_line import run_command
from benchmarking.core.command_names import typed_as
from benchmarking.core.plugins import processor
from benchmarking.core.suggestions import flags_in, with_defaults
from benchmarking.sweep.run.spool import AUTO

__all__ = ["MLRuntimeProfiler", "main"]

NAME = "profiler"
DEFAULT_MODEL = "distilbert-base-uncased"
DEFAULTS = ("--device", processor().name, "--num-runs", "5")
SIZES = {"batch_size": 4, "sequence_length": 128}
"""Arguments of the command that are not among its user's, as is the model."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    given = sys.argv[1:] if argv is None else argv
    has_place = {"--output", "--output-dir"}.intersection(flags_in(given))
    with typed_as(NAME):
        words = with_defaults((*DEFAULTS, *(() if has_place else ("--output", AUTO))), given)
        return run_command(profile.NAME, partial(profile.run, sizes=SIZES, default_model=DEFAULT_MODEL), words)


if __name__ == "__main__":
    sys.exit(main())
