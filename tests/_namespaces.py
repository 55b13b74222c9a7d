"""Two hosts on one machine: network namespaces with an address each, and a link to cut."""

import os
import subprocess

import psutil

ADDRESSES = ("10.213.0.1", "10.213.0.2")

# `ip netns` keeps names in /run, here one that only these processes see.
_SET_UP = f"""
set -e
mount -t tmpfs none /run
ip netns add host0
ip netns add host1
ip -n host0 link add eth0 type veth peer name eth0 netns host1
ip -n host0 address add {ADDRESSES[0]}/24 dev eth0
ip -n host1 address add {ADDRESSES[1]}/24 dev eth0
for host in host0 host1; do
    ip -n $host link set lo up
    ip -n $host link set eth0 up
done
echo ready
exec cat
"""


class TwoHosts:
    """Two network namespaces joined by a link; as a context manager it takes them down.

    One process holds them: the first of a process namespace in which all runs that is started on
    the hosts. It reads until its standard input is closed, so it ends when this process does,
    whatever ends it. With it the system ends all the others, and the namespaces are gone.
    """

    def __init__(self):
        self._started = []
        self._kinds = ["--mount", "--net", "--pid"]
        unshare = ["unshare", *self._kinds, "--mount-proc", "--fork"]
        if os.geteuid() != 0:
            self._kinds.append("--user")
            unshare.append("--map-root-user")
        self._holder = subprocess.Popen(
            [*unshare, "sh", "-c", _SET_UP],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # or Ctrl-C would end it before it is needed no more
        )
        if self._holder.stdout.readline() != "ready\n":
            _, errors = self._holder.communicate()
            raise RuntimeError(f"Network namespaces cannot be made here: {errors.strip()}")
        (first,) = psutil.Process(self._holder.pid).children()
        self._enter = ["nsenter", "--target", str(first.pid), "--preserve-credentials"]

    def command(self, host, *words):
        """The command that runs another on a host, in the root directory."""
        return self._inside("ip", "netns", "exec", f"host{host}", *words)

    def start(self, host, *words, log, env):
        """Start a command on a host; what it prints goes to a file."""
        with log.open("wb") as file:
            process = subprocess.Popen(
                self.command(host, *words),
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )
        self._started.append(process)
        return process

    def cut(self):
        """Cut the link."""
        self._link("down")

    def mend(self):
        """Mend the link."""
        self._link("up")

    def _link(self, state):
        command = self._inside("ip", "-n", "host1", "link", "set", "eth0", state)
        subprocess.run(command, check=True)

    def _inside(self, *words):
        return [*self._enter, *self._kinds, *map(str, words)]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._holder.communicate()
        for process in self._started:
            process.wait()
