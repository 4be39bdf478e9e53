"""`python -m db.commands.selected_runs FILE SELECTION`: the runs with results of a selection, oldest first, as JSON.

A process of its own, so that a command which is about to measure stays small. A run is told by its run_id, command,
host, and by what the id of its hardware is made of.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from benchmarking.core.command_line import run_command
from benchmarking.core.errors import EXIT_OK
from db.analysis.selection import Selection

NAME = "db.commands.selected_runs"
SQL = """
SELECT run_id, command, host, hashed_keys
FROM benchmark_runs
JOIN hardware_info USING (hardware_id)
WHERE run_id IN (SELECT run_id FROM all_results WHERE {condition})
ORDER BY started_at, run_id
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Print the runs; returns 0, or the exit code of what is wrong."""
    return run_command(NAME, _run, argv)


def _run(argv: Sequence[str]) -> int:
    from db.warehouse import Warehouse

    path, text = argv
    selection = Selection.parse(text)
    with Warehouse.open(path, read_only=True) as warehouse:
        rows = warehouse.query(SQL.format(condition=selection.condition), selection.values).dicts()
    print(json.dumps([row | {"hashed_keys": json.loads(row["hashed_keys"])} for row in rows]))
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
