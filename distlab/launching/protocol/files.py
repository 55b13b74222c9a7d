"""The files by which ranks and the kernel tell each other what is too much for a message."""

from pathlib import Path

KERNEL = "kernel"
"""The file, in the directory of a job that an engine runs, with the process id of its kernel."""


def rank_file(directory: Path, rank: int, attempt: int, kind: str) -> Path:
    """The file of one attempt of one rank in its job's directory."""
    return directory / f"rank{rank}-attempt{attempt}.{kind}"
