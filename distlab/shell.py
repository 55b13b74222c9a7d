"""Whether this is a notebook."""

import sys
from typing import Any


def notebook_shell() -> Any:
    """IPython's shell if it runs in a notebook's kernel, else None."""
    ipython = sys.modules.get("IPython")  # importing it would cost a program half a second
    shell = ipython.get_ipython() if ipython is not None else None
    return shell if getattr(shell, "kernel", None) is not None else None
