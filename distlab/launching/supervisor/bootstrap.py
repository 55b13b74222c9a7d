"""How a supervisor comes to be: tie it to its kernel, import the framework, serve."""

import gc
import importlib.util
import os
import signal
import socket
import sys
import traceback
import typing
import weakref

from distlab import frameworks
from distlab.launching import processes
from distlab.launching.protocol.messages import Broken, encode
from distlab.launching.supervisor.identity import DUMP_SIGNAL
from distlab.launching.supervisor.supervisor import Supervisor


def entry() -> None:
    """Import the framework, then serve.

    The arguments are on the command line: the socket's descriptor, the framework or nothing,
    `fork` or nothing, and the process id of the kernel.
    """
    control, framework, fork, kernel = sys.argv[1:]
    connection = socket.socket(fileno=int(control))
    supervisor = Supervisor(connection, bool(fork))
    # Our parent is the thread of the kernel that reads our events: it lasts as long as the kernel.
    # The closing of the socket goes unseen during an import, or while a fork of the kernel lives.
    signal.signal(signal.SIGTERM, lambda *_: supervisor.end())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(DUMP_SIGNAL, signal.SIG_IGN)  # until a rank is ready for it
    processes.die_with_parent(int(kernel), signal.SIGTERM)
    processes.adopt_orphans()
    try:
        with frameworks.without_collections():
            for module in preload(framework or None) if fork else []:
                importlib.import_module(module)
    except BaseException:
        why = f"The framework cannot be imported:\n{traceback.format_exc()}"
        connection.sendall(encode(Broken(error=why)))
        raise
    # A rank finalises at its end what it has made itself, not what it has inherited from here.
    for finalizer in list(getattr(weakref.finalize, "_registry", ())):
        finalizer.atexit = False
    _rehearse_end()
    gc.collect()
    gc.freeze()  # ranks then share these pages for good
    supervisor.serve()()


def _rehearse_end() -> None:
    """Do once what is done when an interpreter ends: it takes each rank less time then."""
    for empty in getattr(typing, "_cleanups", ()):  # by nanobind
        empty()
    if jax := sys.modules.get("jax"):
        jax.clear_caches()
    if dynamo := sys.modules.get("torch._dynamo"):
        dynamo.utils.compile_times()


# What a rank would import sooner or later, beside the framework itself.
_LATER = {
    # The first optimizer of a process, a second; that, at the end of the process, a third of one.
    "torch": ["torch.distributed", "torch._dynamo", "tabulate"],
    # The first program that is compiled, a fifth of its time.
    "jax": ["jaxlib.mlir.dialects.builtin", "jaxlib.mlir.dialects.mhlo"],
    "tensorflow": [],
}


def preload(framework: str | None) -> list[str]:
    """The modules to import before ranks are forked: each Keras, too, that the environment names.

    One that is not installed is left out: a rank that needs it says so best.
    """
    modules = ["cloudpickle", "psutil", "threadpoolctl"]
    if framework is not None:
        modules += [framework, *_LATER[framework]]
    if framework == "tensorflow" and os.environ.get("TF_USE_LEGACY_KERAS") in ("1", "true", "True"):
        modules += ["tf_keras"]
    if framework is not None and os.environ.get("KERAS_BACKEND") == framework:
        modules += ["keras"]
    return [name for name in modules if _is_there(name)]


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # not even what it is part of
        return False
