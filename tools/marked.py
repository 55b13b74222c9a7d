"""Text between marks in a page: what a tool makes, and nobody writes by hand."""

import re
from collections.abc import Mapping


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
