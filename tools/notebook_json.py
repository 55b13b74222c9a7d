"""A notebook's file as Jupyter writes it, made with Python alone: no environment is needed."""

import json
from typing import Any


def written(notebook: object) -> str:
    """Returns a notebook's file as Jupyter writes it."""
    return json.dumps(notebook, ensure_ascii=False, indent=1, sort_keys=True) + "\n"


def source_of(cell: dict[str, Any]) -> str:
    """Returns a cell's source as one text."""
    return "".join(cell["source"])


def with_source(cell: dict[str, Any], source: str) -> dict[str, Any]:
    """Returns a copy of a cell with a different source."""
    return {**cell, "source": source.splitlines(keepends=True)}
