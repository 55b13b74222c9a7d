"""What is installed, and which versions, combinations and settings are known to fail."""

import importlib.metadata
import importlib.util
import os
import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass

from distlab.frameworks import FRAMEWORKS

PACKAGES = ("torch", "tensorflow", "jax", "keras", "tf_keras", "numpy")
"""What distlab works with, and what decides whether it does."""
_NEEDS = re.compile(r"([\w.-]+)>=([\d.]+)")
Versions = dict[str, str | None]
"""The version of each of `PACKAGES`, None where it is not installed."""


@dataclass(frozen=True)
class Remark:
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


def _needs() -> list[str]:
    """What distlab needs, as its own package says; nothing where it is not installed."""
    try:
        return importlib.metadata.requires("distlab") or []
    except importlib.metadata.PackageNotFoundError:
        return []


def _key(version: str) -> tuple[int, ...]:
    """The numbers a version begins with, to compare by: 2.13.0+cpu is (2, 13, 0)."""
    numbers = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, numbers.group().split("."))) if numbers else ()


def look_at_versions(versions: Versions) -> Iterator[Remark]:
    """Say of each package whether its version will do."""
    oldest = {found[1]: found[2] for each in _needs() if (found := _NEEDS.match(each))}
    for name, version in versions.items():
        if version is None:
            yield Remark("", f"{name}: not installed")
        elif name in oldest and _key(version) < _key(oldest[name]):
            words = (
                f"{name} {version} is older than {oldest[name]}, the oldest that distlab supports"
            )
            yield Remark("problem", words, f'pip install "{name}>={oldest[name]}"')
        else:
            yield Remark("", f"{name} {version}")


def look_for_problems(versions: Versions) -> Iterator[Remark]:
    """Find the known problems that are set here. Each has been met, and its cure tried."""
    for look in (_keras, _layout_map, _backend, _host_name, _proxy):
        yield from look(versions)


def _keras(versions: Versions) -> Iterator[Remark]:
    if versions["tensorflow"] is None:
        return
    if versions["tf_keras"] is None:
        yield Remark(
            "problem",
            "tensorflow without tf_keras: fit under MultiWorkerMirroredStrategy needs it, and so\n"
            "do ParameterServerStrategy and DTensor layouts in Keras layers",
            "pip install tf_keras",
        )
    if versions["keras"] and os.environ.get("TF_USE_LEGACY_KERAS") not in ("1", "true", "True"):
        yield Remark(
            "note",
            "Keras 3 cannot fit under MultiWorkerMirroredStrategy (unsupported type PerReplica)",
            "import tf_keras, or set TF_USE_LEGACY_KERAS=1 before TensorFlow is imported",
        )


def _layout_map(versions: Versions) -> Iterator[Remark]:
    if versions["keras"] is not None and _key(versions["keras"]) < (3, 14):
        yield Remark(
            "note",
            f"LayoutMap rules match parts of a path with keras {versions['keras']}, whole paths\n"
            "from 3.14 on",
            'write rules that match the whole path, such as ".*d1/kernel"',
        )


def _backend(versions: Versions) -> Iterator[Remark]:
    backend = os.environ.get("KERAS_BACKEND")
    if not backend or versions["keras"] is None or _version(backend) is not None:
        return
    known = [name for name in FRAMEWORKS if versions[name] is not None]
    yield Remark(
        "problem",
        f"KERAS_BACKEND is {backend}, which is not installed: import keras fails",
        f"set it to {' or '.join(known)}" if known else f"pip install {backend}",
    )


def _host_name(_: Versions) -> Iterator[Remark]:
    name = socket.gethostname()
    try:
        socket.getaddrinfo(name, None)
    except OSError:
        yield Remark(
            "problem",
            f"the host name {name} leads nowhere: torchrun waits for minutes, and so may others",
            f"add it to /etc/hosts: 127.0.0.1 {name}",
        )


def _proxy(_: Versions) -> Iterator[Remark]:
    # The names that gRPC reads, in its order; it ignores those in capitals.
    proxy = next((n for n in ("grpc_proxy", "https_proxy", "http_proxy") if os.environ.get(n)), "")
    named = [os.environ.get(name) for name in ("no_grpc_proxy", "no_proxy")]
    spared = next(filter(None, named), "")
    if proxy and "127.0.0.1" not in spared:
        yield Remark(
            "note",
            f"{proxy} is set: TensorFlow and JAX may look for processes on this machine through\n"
            "that proxy, and wait for ever",
            f"export no_grpc_proxy={spared}{',' if spared else ''}127.0.0.1",
        )
