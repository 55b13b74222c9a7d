"""What is installed, and which versions, combinations and settings are known to fail."""

import importlib.metadata
import importlib.util
import os
import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass

from distlab.frameworks import FRAMEWORKS

PACKAGES = {
    "torch": ("2.11", "2.13.0"),
    "tensorflow": ("2.20", "2.21.0"),
    "jax": ("0.7.2", "0.10.2"),
    "keras": ("3.13", "3.15.1"),
    "tf_keras": ("2.20", "2.21.0"),
    "numpy": ("2.0", "2.4.6"),
}
"""The oldest version distlab supports and the newest it is tested with."""
Versions = dict[str, str | None]
"""The version of each of `PACKAGES`, None where it is not installed."""


@dataclass(frozen=True)
class Finding:
    """One thing that `doctor` has to say.

    Attributes:
        level: `ok`; `note`, which is good to know; `problem`; or empty for a mere fact.
        words: What was found.
        cure: What helps.
    """

    level: str
    words: str
    cure: str = ""

    def __str__(self) -> str:
        lines = self.words.splitlines()
        if self.cure:
            lines.append(f"-> {self.cure}")
        return "\n".join(
            f"  {self.level if line is lines[0] else '':<8} {line}".rstrip() for line in lines
        )


def installed() -> Versions:
    """Which of `PACKAGES` are installed, and in which versions."""
    return {name: _version(name) for name in PACKAGES}


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        if importlib.util.find_spec(package) is None:
            return None
    # It comes under another name, as tensorflow does as tensorflow-cpu.
    names = importlib.metadata.packages_distributions().get(package)
    return importlib.metadata.version(names[0]) if names else "of unknown version"


def _key(version: str) -> tuple[int, ...]:
    """The numbers a version begins with, to compare by: 2.13.0+cpu is (2, 13, 0)."""
    numbers = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, numbers.group().split("."))) if numbers else ()


def look_at_versions(versions: Versions) -> Iterator[Finding]:
    """Say of each package whether its version will do."""
    for name, version in versions.items():
        oldest, newest = PACKAGES[name]
        if version is None:
            yield Finding("", f"{name}: not installed")
        elif _key(version) < _key(oldest):
            words = f"{name} {version} is older than {oldest}, the oldest that distlab supports"
            yield Finding("problem", words, f'pip install "{name}>={oldest}"')
        elif _key(version) > _key(newest):
            yield Finding("note", f"{name} {version}: distlab is tested up to {newest}")
        else:
            yield Finding("", f"{name} {version}")


def look_for_traps(versions: Versions) -> Iterator[Finding]:
    """Find the known traps that are set here. Each has been met, and its cure tried."""
    for look in (_keras, _layout_map, _backend, _host_name, _proxy):
        yield from look(versions)


def _keras(versions: Versions) -> Iterator[Finding]:
    if versions["tensorflow"] is None:
        return
    if versions["tf_keras"] is None:
        yield Finding(
            "problem",
            "tensorflow without tf_keras: fit under MultiWorkerMirroredStrategy needs it, and so\n"
            "do ParameterServerStrategy and DTensor layouts in Keras layers",
            "pip install tf_keras",
        )
    if versions["keras"] and os.environ.get("TF_USE_LEGACY_KERAS") not in ("1", "true", "True"):
        yield Finding(
            "note",
            "Keras 3 cannot fit under MultiWorkerMirroredStrategy (unsupported type PerReplica)",
            "import tf_keras, or set TF_USE_LEGACY_KERAS=1 before TensorFlow is imported",
        )


def _layout_map(versions: Versions) -> Iterator[Finding]:
    if versions["keras"] is not None and _key(versions["keras"]) < (3, 14):
        yield Finding(
            "note",
            f"LayoutMap rules match parts of a path with keras {versions['keras']}, whole paths\n"
            "from 3.14 on",
            'write rules that match the whole path, such as ".*d1/kernel"',
        )


def _backend(versions: Versions) -> Iterator[Finding]:
    backend = os.environ.get("KERAS_BACKEND")
    if not backend or versions["keras"] is None or _version(backend) is not None:
        return
    known = [name for name in FRAMEWORKS if versions[name] is not None]
    yield Finding(
        "problem",
        f"KERAS_BACKEND is {backend}, which is not installed: import keras fails",
        f"set it to {' or '.join(known)}" if known else f"pip install {backend}",
    )


def _host_name(_: Versions) -> Iterator[Finding]:
    name = socket.gethostname()
    try:
        socket.getaddrinfo(name, None)
    except OSError:
        yield Finding(
            "problem",
            f"the host name {name} leads nowhere: torchrun waits for minutes, and so may others",
            f"add it to /etc/hosts: 127.0.0.1 {name}",
        )


def _proxy(_: Versions) -> Iterator[Finding]:
    # The names that gRPC reads, in its order; it ignores those in capitals.
    proxy = next((n for n in ("grpc_proxy", "https_proxy", "http_proxy") if os.environ.get(n)), "")
    named = [os.environ.get(name) for name in ("no_grpc_proxy", "no_proxy")]
    spared = next(filter(None, named), "")
    if proxy and "127.0.0.1" not in spared:
        yield Finding(
            "note",
            f"{proxy} is set: TensorFlow and JAX may look for processes on this machine through\n"
            "that proxy, and wait for ever",
            f"export no_grpc_proxy={spared}{',' if spared else ''}127.0.0.1",
        )
