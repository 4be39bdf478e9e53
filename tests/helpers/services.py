"""Servers of Debian's packages that a test starts for itself, as root: Slurm on one node, and sshd."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pytest

from tests.helpers.sweeps import wait_for

SLURM_CONF = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={node}
AuthInfo=socket={folder}/munge/socket
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
GresTypes=accel
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0
KillWait=2
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory=500 Gres=accel:2 State=UNKNOWN
PartitionName=debug Nodes={host} Default=YES MaxTime=60 State=UP
"""


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nothing listens on."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def need(*programs: str, package: str) -> None:
    """Skip the test where it is not root's, or a program is missing."""
    if os.name != "posix" or os.geteuid() != 0:
        pytest.skip(f"starting {package} needs root")
    for name in programs:
        if shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin") is None:
            pytest.skip(f"there is no {name}: apt-get install {package}")


@contextmanager
def slurm() -> Iterator[Path]:
    """A Slurm of one node, this machine, with two devices `accel`: the path of its slurm.conf."""
    need("munged", "slurmctld", "slurmd", "sbatch", package="slurm-wlm munge")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="slurm-", dir="/tmp")))
        folder.chmod(0o755)
        for name in ("munge", "state", "spool"):
            (folder / name).mkdir()
        (folder / "munge/key").write_bytes(secrets.token_bytes(128))
        (folder / "munge/key").chmod(0o400)
        for path in (folder / "munge", folder / "munge/key"):
            shutil.chown(path, "munge", "munge")
        controller, node = free_ports(2)
        facts = {"host": socket.gethostname().partition(".")[0], "controller": controller, "node": node}
        conf = SLURM_CONF.format(folder=folder, cpus=os.cpu_count(), **facts)
        (folder / "slurm.conf").write_text(conf)
        (folder / "gres.conf").write_text("Name=accel Count=2 Flags=CountOnly\n")
        environment = {
            **os.environ,
            "SLURM_CONF": str(folder / "slurm.conf"),
            "PATH": f"{os.environ['PATH']}:/usr/sbin",
        }
        files = {"socket": "socket", "key-file": "key", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        munged = ["munged", "-F", *(f"--{flag}={folder}/munge/{name}" for flag, name in files.items())]
        stack.enter_context(server(munged, environment, folder / "munged.log", user="munge"))
        wait_for((folder / "munge/socket").exists)
        stack.enter_context(server(["slurmctld", "-D"], environment, folder / "slurmctld.out"))
        stack.enter_context(server(["slurmd", "-D"], environment, folder / "slurmd.out"))
        wait_for(lambda: "idle" in _answer(["sinfo", "-h", "-o", "%t"], environment))
        yield folder / "slurm.conf"


SSHD_CONF = """\
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
PidFile none
UsePAM no
StrictModes no
PermitRootLogin prohibit-password
PermitUserRC no
SetEnv HOME={folder}/home
ForceCommand cd {folder}/home && exec sh -c "$SSH_ORIGINAL_COMMAND"
"""
SSH_CONF = """\
Host {name}
  HostName 127.0.0.1
  Port {port}
  User root
  IdentityFile {folder}/user
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known
  StrictHostKeyChecking yes
  BatchMode yes
"""


@contextmanager
def sshd(folder: Path, name: str) -> Iterator[Path]:
    """A server for root on loopback, which is `name` in the configuration of ssh whose path this gives.

    The home folder there is `folder`/home: the home folder of the machine is neither read nor written.
    """
    need("sshd", "ssh", "ssh-keygen", package="openssh-server")
    (port,) = free_ports(1)
    (folder / "home").mkdir()
    for key in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key)], check=True)
    (folder / "known").write_text(f"[127.0.0.1]:{port} {(folder / 'host.pub').read_text()}")
    (folder / "sshd.conf").write_text(SSHD_CONF.format(port=port, folder=folder))
    (folder / "ssh.conf").write_text(SSH_CONF.format(port=port, folder=folder, name=name))
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # required by sshd
    command = [str(shutil.which("sshd", path="/usr/sbin")), "-D", "-e", "-f", str(folder / "sshd.conf")]
    with server(command, dict(os.environ), folder / "sshd.log"):
        wait_for(lambda: "Server listening" in (folder / "sshd.log").read_text())
        yield folder / "ssh.conf"


@contextmanager
def hosts(count: int, network: str = "10.213.77") -> Iterator[list[str]]:
    """Network namespaces on a bridge, whose own address is NETWORK.1: their names. Each has a link of its name."""
    need("ip", package="iproute2")
    _remove_leftovers()
    names = [f"bench{number}-{os.getpid()}" for number in range(count)]
    bridge = f"bench-{os.getpid()}"

    def ip(*words: str) -> None:
        done = subprocess.run(["ip", *words], capture_output=True, text=True)
        if done.returncode != 0:
            pytest.skip(f"ip {' '.join(words)}: {done.stderr.strip()}")

    with ExitStack() as stack:
        ip("link", "add", bridge, "type", "bridge")
        stack.callback(subprocess.run, ["ip", "link", "del", bridge])
        ip("addr", "add", f"{network}.1/24", "dev", bridge)
        ip("link", "set", bridge, "up")
        for number, name in enumerate(names, start=2):
            ip("netns", "add", name)
            stack.callback(subprocess.run, ["ip", "netns", "del", name])
            ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
            ip("link", "set", name, "master", bridge, "up")
            ip("-n", name, "addr", "add", f"{network}.{number}/24", "dev", "eth0")
            for device in ("eth0", "lo"):
                ip("-n", name, "link", "set", device, "up")
        yield names


def _remove_leftovers() -> None:
    """Remove the bridges and namespaces of tests that were killed: two bridges with one address lead nowhere."""
    for name in (*os.listdir("/sys/class/net"), *(os.listdir("/run/netns") if os.path.isdir("/run/netns") else ())):
        found = re.fullmatch(r"bench(\d*)-(\d+)", name)
        if found and not psutil.pid_exists(int(found[2])):
            kind = "netns" if os.path.exists(f"/run/netns/{name}") else "link"
            subprocess.run(["ip", kind, "del", name], capture_output=True)


def _answer(command: list[str], environment: dict[str, str]) -> str:
    return subprocess.run(command, env=environment, capture_output=True, text=True).stdout


@contextmanager
def server(
    command: list[str], environment: dict[str, str], log: Path, *, user: str | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is ended at the end."""
    owner = {} if user is None else {"user": user, "group": user, "extra_groups": []}
    with log.open("w") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output, **owner)  # type: ignore[call-overload]
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
