"""What a reader sees who interrupts a cell that waits for ranks, or for an import."""

from distlab.shell import notebook_shell


def interrupted(stopped: int) -> KeyboardInterrupt:
    """The interrupt of a wait, in one line, after the ranks were stopped.

    Args:
        stopped: How many ranks had to be stopped.

    Returns:
        What to raise. IPython shows its message alone and none of distlab's lines.
    """
    ranks = f"{stopped} rank{'s' * (stopped != 1)} {'was' if stopped == 1 else 'were'} stopped"
    return _in_one_line(f"interrupted; {ranks}")


def left_alone(over: bool) -> KeyboardInterrupt:
    """The interrupt of something that only watches a job, likewise.

    Args:
        over: Whether the job has come to its end.
    """
    return _in_one_line(
        "interrupted; the job is over" if over else "interrupted; the job goes on: stop() ends it"
    )


def while_importing(framework: str) -> KeyboardInterrupt:
    """The interrupt of an import, likewise.

    Args:
        framework: What was being imported.
    """
    return _in_one_line(f"interrupted while {framework} was being imported; {start_again()}")


def start_again() -> str:
    """What to do where Python itself has to begin anew: a kernel, or a program."""
    return "restart the kernel" if notebook_shell() is not None else "start Python again"


def _in_one_line(words: str) -> KeyboardInterrupt:
    error = KeyboardInterrupt(words)
    # An attribute of the instance, so that the type stays the one that everybody catches.
    error._render_traceback_ = lambda: [f"KeyboardInterrupt: {error}"]  # type: ignore[attr-defined]
    return error
