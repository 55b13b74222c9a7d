"""A real Slurm of two nodes on this machine: its daemons, started for a test and ended after it.

Slurm's nodes have names that resolve, as those of a cluster do, and ports of their own. There is no
accounting database, so `sacct` does not work; `squeue` and `scontrol` know a job for five minutes
after its end.
"""

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
from _processes import wait_gone
from _servers import BINARIES

NODES = ("127.0.0.2", "127.0.0.3")
"""Loopback addresses: names that every Linux resolves, and that lead to this machine."""

_CONFIG = """\
ClusterName=distlab
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={home}/munge.sock,cred_expire=5
CredType=cred/munge
StateSaveLocation={home}/state
SlurmdSpoolDir={home}/spool-%n
SlurmctldPidFile={home}/slurmctld.pid
SlurmdPidFile={home}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
MailProg=/bin/true
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0,sched_min_interval=0
SlurmdParameters=config_overrides
ReturnToService=2
JobRequeue=1
KillWait=2
NodeName=DEFAULT CPUs=8 RealMemory=64000
{nodes}
PartitionName=main Nodes=ALL Default=YES DefaultTime=10 MaxTime=60
"""


@dataclass(frozen=True)
class Slurm:
    """A running Slurm.

    Attributes:
        home: The directory of its state, its logs and its `slurm.conf`.
        environment: What a process needs to speak with it.
        daemons: The ids of its daemons.
    """

    home: Path
    environment: dict[str, str]
    daemons: tuple[int, ...]

    def ask(self, *command: str, timeout: float = 60) -> str:
        """Run one of Slurm's commands and return what it prints."""
        done = subprocess.run(
            command,
            env=os.environ | self.environment,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    def jobs(self) -> list[str]:
        """The ids of the jobs that are pending, running or just ending."""
        return self.ask("squeue", "--noheader", "--format=%A").split()

    def processes(self) -> list[psutil.Process]:
        """What runs in its jobs: Slurm's own slurmstepd, and the tasks."""
        own = [child.pid for pid in self.daemons for child in psutil.Process(pid).children()]
        return [process for process in self.started() if process.pid not in own]

    def started(self) -> list[psutil.Process]:
        """All that its daemons and commands have started, here and in jobs; not the daemons."""
        return [process for process in _marked(self.home) if process.pid not in self.daemons]

    def cancel_all(self) -> None:
        """Cancel every job, and wait until the last has ended."""
        if self.jobs():
            self.ask("scancel", f"--user={_user()}")
        poll(lambda: not self.jobs(), "Slurm's jobs have not ended")


@contextlib.contextmanager
def slurm() -> Iterator[Slurm]:
    """Start munged, slurmctld and a slurmd for each of `NODES`; end them, and what they run.

    SLURM_CONF is set in this process meanwhile, so that Slurm's commands find this one.
    """
    home = Path(tempfile.mkdtemp(prefix="slurm-"))  # short, for the names of its sockets
    environment = {"SLURM_CONF": str(home / "slurm.conf")}
    # It ends everything even if this process is killed; without SLURM_CONF, it spares itself.
    keeper = subprocess.Popen(
        [sys.executable, __file__, str(home)], stdin=subprocess.PIPE, start_new_session=True
    )
    before = os.environ.get("SLURM_CONF")
    os.environ.update(environment)
    daemons: list[subprocess.Popen[bytes]] = []
    running = Slurm(home, environment, ())
    try:
        _write(home)
        for name, *arguments in _commands(home):
            daemons.append(_start(home, name, *arguments))
            running = Slurm(home, environment, tuple(daemon.pid for daemon in daemons))
            if name == "munged":
                poll((home / "munge.sock").exists, "munged does not listen", home, daemons)
        poll(_all_idle, "Slurm's nodes are not idle", home, daemons)
        yield running
        running.cancel_all()
    finally:
        keeper.communicate(b".")
        for daemon in daemons:
            daemon.wait()
        if before is None:
            del os.environ["SLURM_CONF"]
        else:
            os.environ["SLURM_CONF"] = before


def _keep(home: Path) -> None:
    """Wait for the word, or for the end of who would give it; then kill all, and clear up."""
    os.read(0, 1)
    while left := _marked(home):
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        wait_gone([process.pid for process in left], 10)
    shutil.rmtree(home)


def _marked(home: Path) -> list[psutil.Process]:
    """The processes that were started to use the Slurm in `home`, and their descendants."""
    mark = f"SLURM_CONF={home}/slurm.conf".encode()
    found = set()
    for process in psutil.process_iter():
        with contextlib.suppress(OSError, psutil.NoSuchProcess):
            if mark in Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0"):
                found |= {process, *process.children(recursive=True)}
    return [process for process in found if process.pid != os.getpid()]


def _write(home: Path) -> None:
    """The key and the configuration."""
    key = home / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    (home / "state").mkdir()
    for node in NODES:
        (home / f"spool-{node}").mkdir()
    ports = _free_ports(1 + len(NODES))
    here = f"NodeAddr=127.0.0.1 NodeHostname={socket.gethostname().split('.')[0]}"
    pairs = zip(NODES, ports[1:], strict=True)
    nodes = "\n".join(f"NodeName={node} {here} Port={port}" for node, port in pairs)
    text = _CONFIG.format(home=home, user=_user(), ports=ports, nodes=nodes)
    (home / "slurm.conf").write_text(text)


def _commands(home: Path) -> Iterator[tuple[str, ...]]:
    """The daemons, each to run in the foreground."""
    files = ("key-file=munge.key", "socket=munge.sock", "pid-file=munged.pid", "seed-file=seed")
    options = [f"--{name}={home}/{file}" for name, file in (item.split("=") for item in files)]
    # --force, for it is only a warning that other users can't reach the socket.
    yield "munged", "--foreground", "--force", *options
    yield "slurmctld", "-D"
    for node in NODES:
        yield "slurmd", "-D", "-N", node


def _start(home: Path, name: str, *arguments: str) -> "subprocess.Popen[bytes]":
    # In a session of its own, that a ^C for the tests is not for it.
    binary = _binary(name)
    assert binary is not None
    with (home / f"{name}.log").open("ab") as log:
        return subprocess.Popen(
            [binary, *arguments],
            cwd=home,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def _all_idle() -> bool:
    sinfo = ["sinfo", "--noheader", "--Node", "--states=idle"]
    # It prints nothing until slurmctld listens.
    done = subprocess.run(sinfo, capture_output=True, text=True, timeout=60)
    return len(done.stdout.splitlines()) == len(NODES)


def poll(
    condition: Callable[[], bool],
    message: str,
    home: Path | None = None,
    daemons: Sequence["subprocess.Popen[bytes]"] = (),
    timeout: float = 60,
) -> None:
    """Wait for what Slurm does not announce, and say what its logs say if it does not come."""
    deadline = time.monotonic() + timeout
    while not condition():
        ended = [daemon.args for daemon in daemons if daemon.poll() is not None]
        if ended or time.monotonic() > deadline:
            logs = sorted(home.glob("*.log")) if home else []
            text = "\n".join(f"{log.name}:\n{log.read_text()[-2000:]}" for log in logs)
            raise RuntimeError(f"{message}; ended: {ended}\n{text}")
        time.sleep(0.05)


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in held:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in held]


def _binary(name: str) -> str | None:
    return shutil.which(name, path=BINARIES)


def _user() -> str:
    return pwd.getpwuid(os.getuid()).pw_name


if __name__ == "__main__":
    _keep(Path(sys.argv[1]))
