"""How the site's search splits text into words: English, Korean and Japanese alike.

A word with hyphens is one word, and its parts are words as well: `all-reduce` finds pages about
all-reduce, not every page with "reduce". A name with underscores is found by neighbouring parts of
it, too: `reduce_scatter` finds pages with `ring_reduce_scatter`. Korean joins particles to words
and Japanese has no spaces, so their text is split into pairs of neighbouring characters; a query
matches where all of its pairs are. The page splits queries by the same rule, in JavaScript.
"""

import re

from sphinx.search.en import SearchEnglish

WIDE = r"\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3々"
WORD = re.compile(rf"[{WIDE}]+|(?:(?![{WIDE}])\w)+(?:-(?:(?![{WIDE}])\w)+)*")

_JAVASCRIPT = r"""
function splitQuery(query) {
  const part = "(?:(?![WIDE])[\\p{L}\\p{N}_])+";
  const found = query.match(new RegExp(`[WIDE]+|${part}(?:-${part})*`, "gu"));
  return (found ?? []).flatMap((word) => {
    if (!/[WIDE]/u.test(word) || word.length === 1) return [word];
    return Array.from({ length: word.length - 1 }, (_, i) => word.slice(i, i + 2));
  });
}
"""


def query_words(text: str) -> list[str]:
    """Returns the words to look for, as the page's script does.

    Example:
        >>> query_words("all-reduce 勾配 체크포인트")
        ['all-reduce', '勾配', '체크', '크포', '포인', '인트']
    """
    found: list[str] = []
    for word in WORD.findall(text):
        wide = re.match(f"[{WIDE}]", word) and len(word) > 1
        found += [word[i : i + 2] for i in range(len(word) - 1)] if wide else [word]
    return found


def page_words(text: str) -> list[str]:
    """Returns the words that a page can be found by: those of a query, their parts, characters.

    Example:
        >>> page_words("all-reduce 勾配")
        ['all-reduce', 'all', 'reduce', '勾配', '勾', '配']
        >>> page_words("ring_reduce_scatter")
        ['ring_reduce_scatter', 'ring_reduce', 'reduce_scatter']
    """
    found: list[str] = []
    for word in query_words(text):
        found.append(word)
        if word.count("_") > 1:
            parts = word.split("_")
            for size in range(len(parts) - 1, 1, -1):
                runs = ["_".join(parts[i : i + size]) for i in range(len(parts) - size + 1)]
                found += [run for run in runs if run.strip("_")]
        elif "-" in word:
            found += word.split("-")
        elif re.match(f"[{WIDE}]", word) and len(word) > 1:
            found += word
    return found


class Search(SearchEnglish):  # type: ignore[misc]
    """Sphinx's English search with the words above.

    The name of the language, English, names the page's script that finds stems.
    """

    js_splitter_code = _JAVASCRIPT.replace("WIDE", WIDE)

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._stemmed: dict[str, str] = {}

    def stem(self, word: str) -> str:
        """Returns a word's stem; most words are on many pages, and stemming is slow."""
        if word not in self._stemmed:
            self._stemmed[word] = str(super().stem(word))
        return self._stemmed[word]

    def split(self, input: str) -> list[str]:  # noqa: A002 - Sphinx's name
        """Returns the words of a text."""
        return page_words(input)


class SearchKorean(Search):
    """The same for pages in Korean."""

    lang = "ko"


class SearchJapanese(Search):
    """The same for pages in Japanese."""

    lang = "ja"
