"""Tables, and text between marks in a page: what a tool makes, and nobody writes by hand."""

import re
from collections.abc import Iterable, Mapping, Sequence


def table(head: Sequence[str], rows: Iterable[Iterable[object]], rule: str = "") -> str:
    """Return a table in Markdown.

    Args:
        head: What stands above the columns.
        rows: The cells of each row.
        rule: The line between them; without it all columns begin at the left.
    """
    rule = rule or f"| {' | '.join(['---'] * len(head))} |"
    above, *lines = (f"| {' | '.join(map(str, row))} |" for row in (head, *rows))
    return "\n".join([above, rule, *lines]) + "\n"


def filled(page: str, parts: Mapping[str, str]) -> str:
    """Return a page with each part between `<!-- name -->` and `<!-- end of name -->`.

    Raises:
        ValueError: If the page has no such place.
    """
    for name, made in parts.items():
        place = re.compile(f"(?<=<!-- {name} -->\n).*?(?=<!-- end of {name} -->)", re.DOTALL)
        found = place.search(page)
        if found is None:
            raise ValueError(f"the page has no place for a part: <!-- {name} -->")
        page = page[: found.start()] + made + page[found.end() :]
    return page
