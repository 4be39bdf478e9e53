"""The disk of a lake's PostgreSQL server fills up while runs are stored (as root, on Linux):
python -m tests.attack.full_server --size 96

The server's data are in a small file system of their own. Runs are stored by `setup_benchmark_db --ingest` until that
fails, and a few times more; then the disk gets room, and all files are stored again. Every run must then be there once.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarking.core.records import to_json
from db.upkeep.verify import verify
from db.warehouse import Warehouse
from tests.helpers.postgres import running
from tests.helpers.records import make_run


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=96, help="size of the server's disk in MB")
    parser.add_argument("--failures", type=int, default=5, help="number of failed commands before there is room again")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, tempfile.TemporaryDirectory() as disk:
        folder = Path(name)
        os.chmod(folder, 0o755)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={given.size}m,mode=755", "tmpfs", disk], check=True)
        try:
            return _try(folder, Path(disk), given.failures)
        finally:
            subprocess.run(["umount", "-l", disk], check=True)


def _try(folder: Path, disk: Path, failures: int) -> int:
    os.environ["TMPDIR"] = str(disk)
    tempfile.tempdir = None
    with running() as server:
        os.environ["TMPDIR"] = str(folder)
        tempfile.tempdir = None
        database = f"ducklake:postgres:{server.database('lake')}?data_path={folder / 'data'}"
        Warehouse.open(database).close()
        filler, stored, errors, number = disk / "filler", 0, [], 0
        with filler.open("wb") as file:  # leaves 2 MB for the server
            room = os.statvfs(disk)
            file.write(bytes(max(0, room.f_bavail * room.f_frsize - 2_000_000)))
        while len(errors) < failures and number < 200:
            path = folder / f"{number}.json"
            path.write_text(json.dumps(to_json(make_run())))
            number += 1
            done = _ingest(path, database)
            stored += done.returncode == 0
            errors += [] if done.returncode == 0 else [done.stderr]
        filler.unlink()
        server.stop()
        server.start()  # PostgreSQL ends itself when it cannot write its log
        again = _ingest(folder, database)
        with Warehouse.open(database, read_only=True) as warehouse:
            runs = warehouse.query("SELECT count(*) AS n FROM benchmark_runs").dicts()[0]["n"]
            faults = verify(warehouse)
    lines = [len(one.strip().splitlines()) for one in errors]
    print(
        f"stored {stored} of {number} until the disk was full; failed commands printed {lines} lines, e.g. {errors[:1]}"
    )
    print(f"with room: exit code {again.returncode}, {runs} of {number} runs stored once, {faults=}", flush=True)
    return 0 if (again.returncode, runs, faults) == (0, number, []) and set(lines) == {1} else 1


def _ingest(path: Path, database: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "db.setup_benchmark_db", "--ingest", str(path), "--db-path", database, "--quiet"]
    return subprocess.run([*command, "--lock-timeout", "5"], capture_output=True, text=True, check=False, timeout=300)


if __name__ == "__main__":
    sys.exit(main())
