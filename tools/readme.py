"""README's two tables that are made, not written: what works with what, and every way's costs.

`python tools/readme.py` writes them; `--check` only says whether they are as they would be written.
"""

import re
import sys
from pathlib import Path

import nbformat
import works_with

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
EVERY_WAY = ROOT / "notebooks" / "12_one_model_every_way.ipynb"


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
    for name, table in parts.items():
        place = re.compile(f"(<!-- {name} -->\n).*?(<!-- end of {name} -->)", re.DOTALL)
        readme, count = place.subn(lambda found, t=table: found[1] + t + found[2], readme)  # type: ignore[misc]
        if count != 1:
            raise ValueError(f"README.md has no place for a table: <!-- {name} -->")
    return readme


def main() -> int:
    """Write README, or with `--check` compare."""
    before = README.read_text(encoding="utf-8")
    after = written(before)
    if "--check" in sys.argv[1:]:
        return int(before != after)
    README.write_text(after, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
