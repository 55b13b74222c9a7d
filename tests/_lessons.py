"""Small lessons to try the rules on."""

from pathlib import Path

import nbformat
from nbformat import NotebookNode


def prose(source: str) -> NotebookNode:
    """A Markdown cell."""
    return nbformat.v4.new_markdown_cell(source)


def code(source: str, printed: str = "", **metadata) -> NotebookNode:
    """A code cell, with what it has printed."""
    outputs = [nbformat.v4.new_output("stream", name="stdout", text=printed)] if printed else []
    ran = 1 if printed else None
    return nbformat.v4.new_code_cell(
        source, outputs=outputs, execution_count=ran, metadata=metadata
    )


def exercise(title: str, answer: str, check: str, solution: str) -> list[NotebookNode]:
    """The cells of an exercise. As it stands the check has said that something is missing."""
    return [
        prose(f"**{title}** What is missing?"),
        code(answer, tags=["exercise"]),
        code(check, "Not yet: something is missing.\n", tags=["check"]),
        prose(
            "<details><summary>Solution</summary>\n\nBecause.\n\n"
            f"```python\n{solution}\n```\n\n</details>"
        ),
    ]


def save(path: Path, cells: list[NotebookNode]) -> Path:
    """Write the cells as a notebook."""
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    return path
