"""What a notebook shows of a job: a table that keeps itself up to date, a line while it waits."""

from distlab.launching.notebook.table import show
from distlab.launching.notebook.waiting import WaitingLine

__all__ = ["WaitingLine", "show"]
