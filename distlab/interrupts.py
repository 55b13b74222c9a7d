"""What a reader sees who interrupts a cell that waits for ranks."""


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


def _in_one_line(words: str) -> KeyboardInterrupt:
    error = KeyboardInterrupt(words)
    # An attribute of the instance, so that the type stays the one that everybody catches.
    error._render_traceback_ = lambda: [f"KeyboardInterrupt: {error}"]  # type: ignore[attr-defined]
    return error
