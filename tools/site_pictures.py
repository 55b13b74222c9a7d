"""The pictures of the site: what each plot shows, in words, and the one on the front page."""

import ast
import base64
import re
from pathlib import Path

import nbformat
from cells import python

ROOT = Path(__file__).resolve().parent.parent
REAL_RUN = "real_run.png"
FROM = ("13_tensor_and_pipeline", "tp-49-f5f368")
"""The notebook and the cell whose stored picture the front page has."""
TITLES = {"set_title", "suptitle", "set_xlabel", "set_ylabel", "title"}


def titles(source: str) -> list[str]:
    """Returns what a plot's code calls it: the titles and the axes' labels that it gives.

    Example:
        >>> titles("plots.compare(losses, title='The losses'); ax.set_xlabel('step')")
        ['The losses', 'step']
    """
    found = []
    for node in ast.walk(ast.parse(python(source))):
        if not isinstance(node, ast.Call):
            continue
        named = [key.value for key in node.keywords if key.arg in ("title", "xlabel", "ylabel")]
        called = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        given = [*named, *(node.args[:1] if called in TITLES else [])]
        found += [
            x.value for x in given if isinstance(x, ast.Constant) and isinstance(x.value, str)
        ]
    return list(dict.fromkeys(filter(None, found)))


def describe(notebook: nbformat.NotebookNode) -> None:
    """Give each cell with a picture a description of it, for those who can't see it."""
    heading = ""
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            if found := re.findall(r"^#+ (.*)$", cell.source, re.MULTILINE):
                heading = found[-1]
        elif any("image/png" in output.get("data", {}) for output in cell.get("outputs", [])):
            called = titles(cell.source)
            words = "; ".join(called) if called else heading
            words = re.sub(r"[`*$\n]", " ", words)
            cell.metadata["mystnb"] = {"image": {"alt": f"Plot: {words}"}}


def real_picture() -> bytes:
    """Returns the picture of a real run that a lesson has stored.

    Raises:
        ValueError: If the lesson has no such cell, or the cell no picture.
    """
    name, cell_id = FROM
    for cell in nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=4).cells:
        if cell.id == cell_id:
            for output in cell.outputs:
                if stored := output.get("data", {}).get("image/png"):
                    return base64.b64decode(stored)
    raise ValueError(f"{name} has no picture in a cell with the id {cell_id!r}: see {__file__}")


def real_run(words: dict[str, str]) -> str:
    """Returns the part of the front page with the picture of a real run."""
    return (
        f"## {words['real run']}\n\n```{{figure}} {REAL_RUN}\n:alt: {words['run alt']}\n"
        f":figclass: real-run\n:target: notebooks/{FROM[0]}.html\n\n{words['run']}\n```\n"
    )
