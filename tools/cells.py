"""What a notebook's cells say, and code that Python can parse.

All but `python` needs Python alone: `make stamp` and `make translations` need no environment.
"""

from __future__ import annotations

import ast
import json
import re
import tokenize
from collections.abc import Iterator, Sequence
from io import StringIO
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nbformat import NotebookNode

FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```[ \t]*$", re.DOTALL | re.MULTILINE)
HEADING = re.compile(r"^## (?:\d+\. )?(.*)$", re.MULTILINE)
PREDICT = re.compile(r"\*\*Predict\b")
"""Begins a paragraph that asks the reader to predict."""


def written(notebook: object) -> str:
    """Returns a notebook's file as Jupyter writes it."""
    return json.dumps(notebook, ensure_ascii=False, indent=1, sort_keys=True) + "\n"


def source_of(cell: dict[str, Any]) -> str:
    """Returns a stored cell's source as one text."""
    return "".join(cell["source"])


def with_source(cell: dict[str, Any], source: str) -> dict[str, Any]:
    """Returns a copy of a stored cell with a different source."""
    return {**cell, "source": source.splitlines(keepends=True)}


def answer_to(cells: Sequence[NotebookNode], at: int) -> int | None:
    """Returns the number of the cell that shows the answer to the prediction in a cell.

    A function may be written before the cell that shows something. If none shows anything, it is
    the last of the code that follows, and nothing if no code does.
    """
    answer = None
    for number, cell in enumerate(cells[at + 1 :], start=at + 1):
        if cell.cell_type != "code":
            break
        answer = number
        if cell.outputs:
            break
    return answer


def python(source: str) -> str:
    r"""Returns a code cell as Python alone: without magics, and of a script its lines.

    Example:
        >>> python("%%writefile main.py\nx = 1")
        'x = 1'
    """
    first, _, rest = source.partition("\n")
    if first.startswith("%%"):
        return rest if re.fullmatch(r"%%writefile .*\.py\s*", first) else ""
    if not source.strip():
        return ""
    from IPython.core.inputtransformer2 import TransformerManager

    return str(TransformerManager().transform_cell(source))  # type: ignore[no-untyped-call]


def blocks(source: str, language: str = "python") -> list[str]:
    """Returns the fenced blocks of a Markdown cell in one language."""
    return [found[2] for found in FENCE.finditer(source) if found[1] == language]


def remarks(code: str) -> Iterator[str]:
    """Yields the strings and the comments of Python code, each with its lines joined.

    Example:
        >>> list(remarks("x = 'a word'  # and why"))
        ['a word', '# and why']
    """
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
    lines: dict[int, str] = {}
    for token in tokenize.generate_tokens(StringIO(code).readline):
        if token.type == tokenize.COMMENT:
            lines[token.start[0]] = token.string
    # A comment of several lines is one text: a phrase may go from one line to the next.
    for number, text in lines.items():
        if number - 1 in lines:
            continue
        while (number := number + 1) in lines:
            text += " " + lines[number].lstrip("# ")
        yield text


def is_folded(cell: NotebookNode) -> bool:
    """Tells whether JupyterLab hides the cell's source."""
    return bool(cell.metadata.get("jupyter", {}).get("source_hidden"))


def shown(cell: NotebookNode) -> str:
    """Returns what a code cell's stored outputs say, pictures aside."""
    said = []
    for output in cell.get("outputs", []):
        data = output.get("data", {})
        said.append(output.get("text", ""))
        said.append(output.get("evalue", ""))
        if not any(kind.startswith("image/") for kind in data):
            said.append(data.get("text/plain", ""))
    return "\n".join(filter(None, said))
