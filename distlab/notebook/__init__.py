"""What a notebook shows of a job: a table that keeps itself up to date, a line while it waits."""

from distlab.notebook.table import show
from distlab.notebook.waiting import Waiting

__all__ = ["Waiting", "show"]
