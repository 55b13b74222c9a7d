"""How the site's search splits text into words: pages in Python, queries in JavaScript.

Korean joins particles to words and Japanese has no spaces, so their text is split into pairs of
neighbouring characters; a query matches where all of its pairs are. All else is Sphinx's own.
"""

import re

from sphinx.search.en import SearchEnglish

WIDE = r"\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3々"
WORD = re.compile(rf"(?=([{WIDE}]{{1,2}}))[{WIDE}]|(?:(?![{WIDE}])\w)+")

_JAVASCRIPT = r"""
function splitQuery(query) {
  const word = /(?=([WIDE]{1,2}))[WIDE]|(?:(?![WIDE])[\p{L}\p{N}_])+/gu;
  return Array.from(query.matchAll(word), (found) => found[1] ?? found[0]);
}
"""


class Search(SearchEnglish):  # type: ignore[misc]
    """Sphinx's English search, and pairs of characters."""

    js_splitter_code = _JAVASCRIPT.replace("WIDE", WIDE)

    def split(self, input: str) -> list[str]:  # noqa: A002 - Sphinx's name
        """Returns the words that a page can be found by, and its single characters.

        Example:
            >>> Search({}).split("all-reduce 勾配の")
            ['all', 'reduce', '勾', '勾配', '配', '配の', 'の']
        """
        found: list[str] = []
        for word in WORD.finditer(input):
            found += dict.fromkeys(filter(None, (word[0], word[1])))
        return found
