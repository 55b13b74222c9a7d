"""README's two tables that are made, not written: what works with what, and every way's costs.

`python tools/readme.py` writes them.
"""

from pathlib import Path

import nbformat
import translations
import works_with
from marked import filled

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
EVERY_WAY = ROOT / "notebooks" / "15_one_model_every_way.ipynb"


def every_way() -> str:
    """Return the table that the notebook's cell with the tag `readme` has stored."""
    for cell in nbformat.read(EVERY_WAY, as_version=4).cells:
        if "readme" in cell.metadata.get("tags", []):
            for output in cell.outputs:
                if "text/markdown" in output.get("data", {}):
                    return str(output.data["text/markdown"]).strip() + "\n"
    raise ValueError(f"{EVERY_WAY.name} has no table in a cell with the tag readme.")


def written(readme: str) -> str:
    """Return README's text with both tables made anew."""
    parts = {
        "works with": works_with.table(works_with.stored()),
        "every way": every_way(),
    }
    return filled(readme, parts)


if __name__ == "__main__":
    README.write_text(written(README.read_text(encoding="utf-8")), encoding="utf-8")
    translations.write()
