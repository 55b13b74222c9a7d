"""What the glossary says about a word, where a page links to it."""

import re
from html import escape

ENTRY = re.compile(r"^###? ([^\n]*)\n\n(.*?)(?=\n\n|\Z)", re.MULTILINE | re.DOTALL)
TERM = re.compile(
    r'<a class="reference internal" href="(?P<link>[^"]*glossary\.html#(?P<id>[^"]+))">'
)
SECTION = re.compile(r'<section id="([^"]+)">\s*<h3>(.*?)<a class="headerlink"', re.DOTALL)


def definitions(glossary: str) -> dict[str, str]:
    r"""Returns what the glossary says about each word, as plain text.

    Example:
        >>> definitions("### axis\n\nOne *named* dimension\nof a [mesh](#mesh).\n")
        {'axis': 'One named dimension of a mesh.'}
    """
    found = {}
    for term, text in ENTRY.findall(glossary):
        plain = re.sub(r"\[([^]]+)\]\([^)]*\)", r"\1", text)
        found[term] = re.sub(r"[`*]", "", " ".join(plain.split()))
    return found


def explained(body: str, meanings: dict[str, str]) -> str:
    """Returns a page's HTML in which each link to a word of the glossary carries its meaning.

    Args:
        body: The page.
        meanings: What each word means, by its anchor in the built glossary.
    """

    def new(found: re.Match[str]) -> str:
        meaning = meanings.get(found["id"])
        if meaning is None:
            return found[0]
        return (
            f'<a class="reference internal term" href="{found["link"]}"'
            f' data-meaning="{escape(meaning)}">'
        )

    return TERM.sub(new, body)
