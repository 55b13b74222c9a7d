"""Mermaid's drawing of the layers, as boxes that need no script."""

import re
from html import escape

BLOCK = re.compile(r"^```mermaid\n(.*?)^```\n", re.DOTALL | re.MULTILINE)
LAYER = re.compile(r"^  subgraph .*?^  end$", re.DOTALL | re.MULTILINE)
BOX = re.compile(r'^ +(\w+)\["(\w+)"\]$', re.MULTILINE)
ARROW = re.compile(r"^ +(\w+) --> (\w+)$", re.MULTILINE)


def drawn(page: str) -> str:
    """Returns a page with each Mermaid flowchart of layers as rows of boxes.

    What a box imports stands in it, for the arrows.

    Raises:
        ValueError: If a flowchart has no layers.
    """
    return BLOCK.sub(lambda found: boxes(found[1]), page)


def boxes(flowchart: str) -> str:
    """Returns a flowchart of layers as HTML."""
    arrows = ARROW.findall(flowchart)
    names = dict(BOX.findall(flowchart))
    rows = []
    for layer in LAYER.findall(flowchart):
        row = []
        for key, name in BOX.findall(layer):
            used = ", ".join(names[there] for here, there in arrows if here == key)
            small = f"<small>→ {escape(used)}</small>" if used else ""
            row.append(f"<li><code>{escape(name)}</code>{small}</li>")
        rows.append(f'<li><ul class="layer">{"".join(row)}</ul></li>')
    if not rows:
        raise ValueError(f"a flowchart has no layers: {flowchart[:200]}")
    return f'<ol class="layers">{"".join(rows)}</ol>\n'
