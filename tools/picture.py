"""Draws who imports whom in the package, in the layers that `pyproject.toml` holds it to.

Usage: python tools/picture.py [--check]
"""

import ast
import sys
import tomllib
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "house.md"
HEAD = """\
# Modules and layers

`make picture` makes this page from the imports in the code, and `make check` says when they have
changed. A module or a package imports only what is in the layers below its own, as
`[tool.importlinter]` in `pyproject.toml` has them, and no modules of a package import one another
in a circle. What is imported for type checkers alone does not count. An arrow that others imply is
left out.

```mermaid
"""


def layers() -> list[list[str]]:
    """Returns the names of modules and packages in each layer, the highest first."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    contract = next(each for each in settings["contracts"] if each["type"] == "layers")
    return [[name.strip() for name in layer.split("|")] for layer in contract["layers"]]


def arrows(names: list[str]) -> dict[str, set[str]]:
    """Returns what each imports directly, less what it gets through something it imports."""
    graph = grimp.build_graph("distlab", exclude_type_checking_imports=True)
    for name in names:
        graph.squash_module(f"distlab.{name}")
    inner = {f"distlab.{name}": name for name in names}
    direct = {
        short: {
            inner[found]
            for found in graph.find_modules_directly_imported_by(long) & ({*inner} - {long})
        }
        for long, short in inner.items()
    }
    below: dict[str, set[str]] = {}

    def reached(name: str) -> set[str]:
        if name not in below:
            below[name] = direct[name].union(*map(reached, direct[name]))
        return below[name]

    return {
        name: {one for one in found if not any(one in reached(other) for other in found - {one})}
        for name, found in direct.items()
    }


def page() -> str:
    """Returns the text of the page."""
    rows = layers()
    lines = ["flowchart TB"]
    for number, names in enumerate(rows):
        lines += [f'  subgraph layer{number}[" "]', "    direction LR"]
        lines += [f'    {name.strip("_")}["{name}"]' for name in names]
        lines += ["  end"]
    for name, found in arrows([name for names in rows for name in names]).items():
        lines += [f"  {name.strip('_')} --> {other}" for other in sorted(found)]
    rooms = [name for names in rows for name in names]
    table = ["| module or package | what it is |", "| --- | --- |"]
    table += [f"| `{name}` | {purpose(name)} |" for name in rooms]
    return HEAD + "\n".join(lines) + "\n```\n\n" + "\n".join(table) + "\n"


def purpose(name: str) -> str:
    """Returns the first line of a module's docstring."""
    path = ROOT / "distlab" / name
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return (ast.get_docstring(ast.parse(file.read_text())) or "").partition("\n")[0]


def main() -> int:
    """Writes the page, or with --check says whether it is as it should be."""
    if "--check" in sys.argv[1:]:
        if PAGE.exists() and PAGE.read_text() == page():
            return 0
        print(f"{PAGE.relative_to(ROOT)} is out of date: make picture writes it.")
        return 1
    PAGE.write_text(page())
    print(f"Wrote {PAGE.relative_to(ROOT)}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
