"""What is made, not written: README's picture, and the tables of two pages that it leads to.

`python tools/readme.py` writes them.
"""

import base64
import re
from collections.abc import Iterator
from pathlib import Path

import nbformat
import translations
import works_with
from marked import filled
from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = ROOT / "notebooks"
EVERY_WAY = NOTEBOOKS / "15_one_model_every_way.ipynb"
PICTURE = NOTEBOOKS / "03_model_parallel_keras.ipynb"
DRAWING = re.compile(r'<img src="data:image/svg\+xml;base64,([^"]+)"')


def outputs(path: Path, kind: str) -> Iterator[tuple[NotebookNode, str]]:
    """Yield what a notebook has stored of a kind, each with its cell."""
    for cell in nbformat.read(path, as_version=4).cells:
        for output in cell.get("outputs", []):
            if kind in output.get("data", {}):
                yield cell, output.data[kind]


def every_way() -> str:
    """Return the table that the notebook's cell with the tag `readme` has stored."""
    found = outputs(EVERY_WAY, "text/markdown")
    (table,) = (text for cell, text in found if "readme" in cell.metadata.get("tags", []))
    return f"{table.strip()}\n"


def picture() -> str:
    """Return the first drawing that the lesson on model parallelism has stored, an SVG document."""
    drawings = (DRAWING.search(html) for _, html in outputs(PICTURE, "text/html"))
    return base64.b64decode(next(filter(None, drawings))[1]).decode() + "\n"


def written() -> dict[Path, str]:
    """Return the text of each file that is made, or of which a part is."""
    docs = ROOT / "docs"
    parts = {
        docs / "works_with.md": {
            "works with": works_with.table(works_with.stored()),
            "broken": works_with.table_of_breakages(works_with.stored()),
        },
        docs / "field.md": {"every way": every_way()},
    }
    pages = {path: filled(path.read_text(encoding="utf-8"), made) for path, made in parts.items()}
    return pages | {docs / "picture.svg": picture()}


if __name__ == "__main__":
    for path, text in written().items():
        path.write_text(text, encoding="utf-8")
    translations.write()
