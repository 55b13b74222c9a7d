"""Whether this process is IPython's, and whether it is a notebook's kernel."""

import sys
from typing import Any


def ipython_shell() -> Any:
    """IPython's shell, in a notebook or a terminal, if this process has one; else None."""
    ipython = sys.modules.get("IPython")  # importing it would cost a program half a second
    return ipython.get_ipython() if ipython is not None else None


def notebook_shell() -> Any:
    """IPython's shell if it runs in a notebook's kernel, else None."""
    shell = ipython_shell()
    return shell if getattr(shell, "kernel", None) is not None else None
