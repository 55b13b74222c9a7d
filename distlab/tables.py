"""Rows of cells as text in columns, and as an HTML table."""

from collections.abc import Sequence


def aligned(rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """Return rows of cells as text in columns, some of them set to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = (
            cell.rjust(width) if i in right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def html_table(
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: Sequence[int] = (),
    *,
    last_bold: bool = False,
) -> str:
    """Return rows of cells as an HTML table, which takes the notebook's own colours."""
    from html import escape  # which is slow to import

    def line(cells: Sequence[str], tag: str) -> str:
        aligns = ("right" if i in right else "left" for i in range(len(cells)))
        return "".join(
            f'<{tag} style="text-align:{align}">{escape(cell)}</{tag}>'
            for cell, align in zip(cells, aligns, strict=True)
        )

    last = len(rows) - 1
    body = "".join(
        f"<tr>{line(row, 'th' if last_bold and i == last else 'td')}</tr>"
        for i, row in enumerate(rows)
    )
    return f"<table><thead><tr>{line(heads, 'th')}</tr></thead><tbody>{body}</tbody></table>"
