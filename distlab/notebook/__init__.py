"""What a notebook shows of a job: a table that keeps itself up to date, a line while it waits."""

from distlab.notebook.table import show
from distlab.notebook.waiting import WaitingLine

__all__ = ["WaitingLine", "show"]
