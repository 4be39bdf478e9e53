"""Workers as Slurm jobs, with a real Slurm from Debian's packages on this machine."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest

pytest.importorskip("dask_jobqueue")

from benchmarking import batch_benchmark, benchmark_model
from benchmarking.cluster import remote_workers
from benchmarking.cluster.remote_workers import SlurmConfig, read_config
from benchmarking.cluster.scheduler import Setup, WorkerRequirements
from benchmarking.core.errors import BenchhouseError, UsageError
from tests.helpers.services import slurm
from tests.helpers.sweeps import wait_for

CONFIG = """\
partition: debug
gres: accel:1
time_limit: "00:07:00"
memory: 200M
directives: --comment=measuring
interface: lo
setup:
  - scontrol --oneliner show job $SLURM_JOB_ID > job.txt
"""
GRID = ["--devices", "null", "--weights", "random", "--batch-sizes", "1", "--sequence-lengths", "32", "--quiet"]


@pytest.fixture
def config(tmp_path, monkeypatch):
    """The file of a Slurm that runs, in a working folder whose name has a space."""
    folder = tmp_path / "my jobs"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("BENCHMARK_DB_PATH", str(folder / "own.duckdb"))
    (folder / "slurm.yaml").write_text(CONFIG)
    with slurm() as conf:
        monkeypatch.setenv("SLURM_CONF", str(conf))
        yield folder / "slurm.yaml"


@pytest.mark.slow
def test_batches_run_as_slurm_jobs_and_rejections_are_reported(config, capsys, monkeypatch):
    folder = config.parent
    batch = ["--models", "tiny-bert", *GRID, "--iterations", "3", "--output-dir", "runs"]
    assert batch_benchmark.main([*batch, "--cluster", "slurm:slurm.yaml"]) == 0
    (run,) = (json.loads(path.read_text()) for path in (folder / "runs").glob("tiny*.json"))
    assert [one["status"] for one in run["results"]] == ["ok"]
    found = run["environment"]["values"]
    assert (found["cluster"], found["cluster_worker"]) == ("slurm:slurm.yaml", "slurm-0")
    job = dict(word.split("=", 1) for word in (folder / "job.txt").read_text().split() if "=" in word)
    submitted = {
        key: job[key] for key in ("Partition", "TimeLimit", "TresPerNode", "OverSubscribe", "MinMemoryNode", "Comment")
    }
    assert submitted == {
        "Partition": "debug",
        "TimeLimit": "00:07:00",
        "TresPerNode": "gres:accel:1",
        "OverSubscribe": "NO",  # the node is the job's alone
        "MinMemoryNode": "200M",
        "Comment": "measuring",
    }
    point = {"batch_sizes": (1,), "sequence_lengths": (32,), "iterations": 3, "launches": 1}
    run = benchmark_model("tiny-bert", device="null", weights="random", use_slurm="slurm.yaml", **point)
    assert (run.status, run.environment.values["cluster_worker"]) == ("ok", "slurm-0")
    wait_for(lambda: subprocess.run(["squeue", "-h"], capture_output=True, text=True).stdout == "")
    assert not list((folder / "slurm_jobs").rglob("*.pem"))  # the certificates were of this command
    capsys.readouterr()
    config.write_text("partition: gpu\ninterface: lo")
    assert batch_benchmark.main([*batch, "--use-slurm", "slurm.yaml"]) == 1
    assert re.search(r"Slurm rejected the jobs: .*[Ii]nvalid partition", capsys.readouterr().err)
    monkeypatch.setattr("benchmarking.cluster.remote_workers.END_GRACE_S", 0.5)
    config.write_text("interface: lo\nsetup: echo out of order >&2; exit 3")
    assert batch_benchmark.main([*batch, "--use-slurm", "slurm.yaml"]) == 1
    stderr = capsys.readouterr().err
    assert re.search(r"its jobs have ended: out of order \(.+/my jobs/slurm_jobs/benchhouse-\d+\.err\)", stderr)


def test_an_interface_that_this_machine_lacks_is_an_error_in_one_line(tmp_path, monkeypatch):
    """And what is said of it can be interrupted: the import of dask_jobqueue replaces the handler of Ctrl-C."""
    monkeypatch.setattr(remote_workers, "program", lambda name: name)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in [name for name in sys.modules if name.partition(".")[0] == "dask_jobqueue"]:
        monkeypatch.delitem(sys.modules, name)
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    config = SlurmConfig(interface="nosuch", folder="~/jobs")
    with (
        pytest.raises(BenchhouseError, match=r"starts here: 'nosuch' is not a valid .*: check interface"),
        remote_workers.slurm_jobs(config, Setup(), WorkerRequirements(), None, print),
    ):
        pass
    assert signal.signal(signal.SIGINT, handler) is signal.default_int_handler
    assert (tmp_path / "jobs").is_dir()


def test_only_jobs_that_slurm_says_have_ended_are_given_up(tmp_path, monkeypatch):
    squeue = tmp_path / "squeue"
    monkeypatch.setattr(remote_workers, "POLL_S", 0.0)
    monkeypatch.setattr(remote_workers, "END_GRACE_S", -1.0)
    cluster = SimpleNamespace(workers={"slurm-0": SimpleNamespace(job_id="7")})
    failure = remote_workers.jobs_failure(cluster, str(squeue), tmp_path, print)
    answers = {
        "echo 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' >&2; exit 1": None,
        "echo 'PENDING Priority'": None,
        "exit 0": "its jobs have ended: their output is in",
        "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1": "its jobs have ended: their",
    }
    for answer, why in answers.items():
        squeue.write_text(f"#!/bin/sh\n{answer}\n")
        squeue.chmod(0o755)
        found = failure()
        assert found is None if why is None else found.startswith(why)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("partitions: gpu", r"1: unknown key 'partitions': did you mean partition\? "),
        ("jobs: 2\njobs: 3", "2: jobs is there already, in line 1"),
        ("time_limit: 1:30:00", "1: takes plain values: got '1:30:00'; put it in quotes"),
        ("time_limit: 90", '1: time_limit: takes text such as "02:00:00"'),
        ('partition: "a\\n#SBATCH --uid=0"', "1: partition: takes text such as gpu"),
        ('setup: ["module load cuda\\nrm x"]', "1: setup: takes shell commands"),
        ("directives: uid=0", "1: directives: takes text such as"),
        ("gres: [gpu]", "1: gres: takes text such as gpu:1: got a list"),
        ("exclusive: 1", "1: exclusive: takes true or false: got 1"),
        ("jobs: 0", "1: jobs: takes a whole number from 1 to 10000"),
        ("jobs: 100000", "1: jobs: takes a whole number from 1 to 10000"),
        ("cpus: true", "1: cpus: takes a whole number from 1 to 10000: got True"),
        ("wait_s: .inf", "1: wait_s: takes seconds above 0"),
        ("folder: a b", "1: folder: takes text such as slurm_jobs, without spaces"),
    ],
)
def test_configuration_errors_name_the_line(tmp_path, text, why):
    path = tmp_path / "slurm.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match=f"slurm.yaml:{why}"):
        read_config(path)


def test_the_configuration_sets_every_slurm_directive(tmp_path):
    path = tmp_path / "slurm.yaml"
    path.write_text('account: mine\nexclusive: false\njobs: 3\ntime_limit: "1-12:00:00"\ngres: gpu:a100:2\nwait_s: 60')
    assert read_config(path) == SlurmConfig(
        account="mine", exclusive=False, jobs=3, time_limit="1-12:00:00", gres="gpu:a100:2", wait_s=60.0
    )
    path.write_text('gres: gpu:h100-96:1\nmemory: "0"\ntime_limit: UNLIMITED')
    assert read_config(path) == SlurmConfig(gres="gpu:h100-96:1", memory="0", time_limit="UNLIMITED")
    path.write_text('memory: "64000"\ntime_limit: "1440"')
    assert read_config(path) == SlurmConfig(memory="64000", time_limit="1440")
