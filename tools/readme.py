"""What is made, not written: README's picture, and the tables of two pages that it leads to.

`python tools/readme.py` writes them.
"""

import base64
import re
from pathlib import Path

import nbformat
import translations
import works_with
from marked import filled

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = ROOT / "notebooks"
EVERY_WAY = NOTEBOOKS / "15_one_model_every_way.ipynb"
PICTURE = NOTEBOOKS / "03_model_parallel_keras.ipynb"
DRAWING = re.compile(r'<img src="data:image/svg\+xml;base64,([^"]+)"')


def every_way() -> str:
    """Return the table that the notebook's cell with the tag `readme` has stored."""
    for cell in nbformat.read(EVERY_WAY, as_version=4).cells:
        if "readme" in cell.metadata.get("tags", []):
            for output in cell.outputs:
                if "text/markdown" in output.get("data", {}):
                    return str(output.data["text/markdown"]).strip() + "\n"
    raise ValueError(f"{EVERY_WAY.name} has no table in a cell with the tag readme.")


def picture() -> str:
    """Return the first drawing that the lesson on model parallelism has stored, an SVG document."""
    for cell in nbformat.read(PICTURE, as_version=4).cells:
        for output in cell.get("outputs", []):
            if found := DRAWING.search(output.get("data", {}).get("text/html", "")):
                return base64.b64decode(found[1]).decode() + "\n"
    raise ValueError(f"{PICTURE.name} stores no drawing.")


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
