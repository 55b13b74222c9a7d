"""Keeps the notebooks in one shape: runs them, tidies them, names what doesn't belong in them."""

import argparse
import base64
import io
import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbformat import NotebookNode
from PIL import Image
from run import STILL
from setup_cell import METADATA as SETUP_METADATA
from setup_cell import address_in
from translations import write

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "notebooks"
# What JupyterLab itself writes with the Python that stores the outputs: opening and saving a lesson
# then changes nothing. Whatever else there is in the metadata some other editor has written.
NOTEBOOK_METADATA = {
    "kernelspec": {
        "display_name": "Python 3 (ipykernel)",
        "language": "python",
        "name": "python3",
    },
    "language_info": {
        "codemirror_mode": {"name": "ipython", "version": 3},
        "file_extension": ".py",
        "mimetype": "text/x-python",
        "name": "python",
        "nbconvert_exporter": "python",
        "pygments_lexer": "ipython3",
        "version": "3.11.7",
    },
}
CELL_METADATA = {"cellView", "jupyter", "tags"}
# What differs from one machine or one run to the next.
PASSING = {
    "an absolute path": r"(?<![\w/.:])/(?:content|dev/shm|home|mnt|opt|private|root|tmp|usr"
    r"|Users|var|work)/\w|\b[A-Z]:\\\w",
    "a memory address": r"\b0x[0-9a-f]{6,}\b",
    "a port": r"(?:127\.0\.0\.1|localhost|0\.0\.0\.0|::1\]?):\d{2,5}\b|\bport\W{1,3}\d{4,5}\b",
    "a process id": r"(?i)\bpid\W{1,3}\d+\b",
}
MEASURED = {
    # A limit that the code sets, as faulthandler prints it, is the same everywhere.
    "a time": r"(?<!Timeout \()\b\d{1,2}:\d\d:\d\d\b|\b\d+m?s/(?:step|epoch)\b",
    "a rounding error": r"\b(?!1e)\d(?:\.\d+)?e-0[5-9]\b",  # processors differ
}
"""What only an output may say that is not compared."""


def tidy(notebook: NotebookNode) -> str:
    """Returns the notebook's file as it should be: no metadata but what readers need."""
    notebook.metadata = nbformat.from_dict(NOTEBOOK_METADATA)
    for cell in notebook.cells:
        for key in set(cell.metadata) - CELL_METADATA:
            del cell.metadata[key]
        if cell.metadata.get("jupyter", {}).get("outputs_hidden"):
            cell.metadata["collapsed"] = True  # the older name, which JupyterLab adds
    if code := code_cells(notebook):
        code[0].metadata.update(nbformat.from_dict(SETUP_METADATA))
    return str(nbformat.writes(notebook)).rstrip("\n") + "\n"


def read(text: str) -> NotebookNode:
    """Reads and validates a notebook."""
    notebook = nbformat.reads(text, as_version=4)
    nbformat.validate(notebook)
    return notebook


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    """Returns the notebook's code cells."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def texts(output: NotebookNode) -> Iterator[str]:
    """Yields everything a stored output says, pictures aside."""
    if output.output_type == "error":
        yield "\n".join([output.evalue, *output.traceback])
    yield output.get("text", "")
    for kind, content in output.get("data", {}).items():
        if not kind.startswith("image/") or kind == "image/svg+xml":
            yield str(content)


def has_ground(output: NotebookNode) -> bool:
    """Tells whether a picture would be a bright box on a dark page, or a dark one on a bright."""
    if "needs_background" in str(output.get("metadata", "")):  # JupyterLab puts one behind it
        return True
    with Image.open(io.BytesIO(base64.b64decode(output.data["image/png"]))) as picture:
        return picture.convert("RGBA").getchannel("A").crop((0, 0, 1, 1)).getextrema() != (0, 0)


def problems_of_cell(cell: NotebookNode) -> Iterator[str]:
    """Yields what is wrong with the stored outputs of a cell."""
    tags = cell.metadata.get("tags", [])
    patterns = PASSING if "nbval-ignore-output" in tags else PASSING | MEASURED
    if not cell.source.strip():
        yield "is empty"
    folded = cell.metadata.get("jupyter", {}).get("source_hidden")
    if folded and re.search("^assert ", cell.source, re.M) and "raises-exception" not in tags:
        yield "has checks and no tag raises-exception: one that fails would stop a reader's Run All"
    before = None
    for output in cell.outputs:
        kind = output.output_type, output.get("name")
        if kind == ("stream", "stderr"):
            yield "stores what went to stderr"
        if kind == before == ("stream", "stdout"):
            yield "stores its stdout in pieces"
        if output.output_type == "error" and (
            "raises-exception" not in tags or output.ename == "AssertionError"
        ):
            yield f"stores an error that should not be there: {output.ename}"
        before = kind
        if "image/svg+xml" in output.get("data", {}):
            yield "stores an SVG as such, which JupyterLab hides until the notebook is trusted"
        if "image/png" in output.get("data", {}) and has_ground(output):
            yield "stores a plot with a ground of its own: distlab.plots.use_style() takes it away"
        for text in texts(output):
            for name, pattern in patterns.items():
                if found := re.search(pattern, text):
                    yield f"stores {name}: {found[0]!r}"


def problems(path: Path) -> list[str]:
    """Returns what is wrong with a notebook, one line each."""
    text = path.read_text(encoding="utf-8")
    notebook = read(text)
    code = code_cells(notebook)
    found = []
    if not notebook.cells or not notebook.cells[0].source.startswith("# "):
        found.append("the first cell is not a title")
    if not code or address_in(code[0].source) is None:
        found.append("the first code cell is not the one in tools/setup_cell.py")
    elif code[0].metadata != SETUP_METADATA:
        found.append("the set-up cell is not folded")
    if [cell.execution_count for cell in code] != list(range(1, len(code) + 1)):
        found.append("the cells were not run once each, in order")
    for number, cell in enumerate(code, start=1):
        found += [f"code cell {number} {problem}" for problem in problems_of_cell(cell)]
    if tidy(notebook) != text:
        found.append("its metadata or its formatting would change on the next save")
    return [f"{path.name}: {problem}" for problem in found]


def execute(path: Path) -> None:
    """Runs a notebook from top to bottom in a fresh kernel and stores what it prints."""
    notebook = read(path.read_text(encoding="utf-8"))
    # Without TensorFlow's notices, as under `make lab`.
    os.environ.update(STILL, PYTHONSTARTUP=str(ROOT / "tools" / "jupyter" / "startup.py"))
    NotebookClient(
        notebook,
        timeout=600,
        kernel_name="python3",
        resources={"metadata": {"path": str(path.parent)}},
        record_timing=False,
        coalesce_streams=True,
    ).execute()
    path.write_text(tidy(notebook), encoding="utf-8", newline="\n")


def main() -> int:
    """Checks, tidies or runs the notebooks named on the command line, all of them without names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=("check", "tidy", "run"))
    parser.add_argument("notebooks", nargs="*", type=Path)
    arguments = parser.parse_args()
    is_check = arguments.action == "check"
    translated = FOLDER.glob("[a-z][a-z]/*.ipynb") if is_check else ()
    paths = arguments.notebooks or sorted([*FOLDER.glob("*.ipynb"), *translated])
    wrong = 0
    for path in paths:
        if is_check:
            for problem in (found := problems(path)):
                print(problem)
            wrong += bool(found)
        elif arguments.action == "tidy":
            notebook = read(path.read_text(encoding="utf-8"))
            path.write_text(tidy(notebook), encoding="utf-8", newline="\n")
        else:
            start = time.monotonic()
            try:
                execute(path)
            except CellExecutionError as error:
                print(f"{path.name} failed and stays as it was:\n{error}", file=sys.stderr)
                wrong += 1
            else:
                print(f"{path.name}: {time.monotonic() - start:.0f} s", flush=True)
    if not is_check and FOLDER in {path.resolve().parent for path in paths}:
        write()  # most translated notebooks have the same code and outputs
    if is_check:
        print(f"{len(paths)} notebooks, {wrong} to put right (most: make notebooks).")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
