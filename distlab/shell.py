"""Whether this is a notebook."""

from typing import Any


def notebook_shell() -> Any:
    """IPython's shell if it runs in a notebook's kernel, else None."""
    try:
        from IPython import get_ipython
    except ImportError:
        return None
    shell = get_ipython()
    return shell if getattr(shell, "kernel", None) is not None else None
