"""Words that lessons don't use, because they are nearly always wrong, and what to write instead.

docs/writing.md has what no list can hold.
"""

import re
from collections.abc import Iterator

WORST = {
    r"(?:un)?cuts?|cutting": "split or sharded, a split",
    # "the whole model" is plain English; "is whole", "kept whole" and "a whole kernel" are not.
    r"whole(?! numbers?\b)(?<!as a whole)(?<!on the whole)"
    r"(?!(?<=\bthe whole) (?!(?:and|at|in|is|of|on|to)\b)[a-z])": "full, complete, or replicated",
    r"pieces?(?! of (?:advice|code|paper|work)\b)": "shards, slices or parts",
    r"lies?|lying|lain|(?<=\bwhat )lay|(?<=\bit )lay": "is, is stored or resides; curves coincide",
    r"anew": "again; laid out anew: resharded",
    r"in earnest": "really, or leave it out",
    r"hears? (?:nothing|anything) (?:of|from|about)": "does not see",
    r"kn[eo]ws? (?:nothing |no \w+ )?of": "does not depend on, has no, or knows about",
    r"for ever": "forever, or without end",
    r"in silence": "silently",
    r"shall": "should, must or will",
    r"to the last bit": "bit for bit, exactly",
    r"(?<=\w )besides(?=[.:;]|$)": "as well, or too",
    r"of one's own": "your own",
    r"mend(?:s|ed|ing)?": "fix or repair",
    r"without more ado": "without further settings",
    r"typing errors?": "typo",
    r"(?:(?<=^)|(?<=[.!?] ))as to": "about, or a sentence of its own",
}
"""A regular expression between word boundaries, and what to write instead."""


def worst_words(text: str) -> Iterator[str]:
    """Yields one message for each of the worst words in a text.

    Args:
        text: What a reader reads, without code.

    Example:
        >>> list(worst_words("It is laid out anew."))
        ['"anew": write again; laid out anew: resharded (It is laid out anew.)']
    """
    text = " ".join(text.split())
    for pattern, instead in WORST.items():
        for found in re.finditer(rf"\b(?:{pattern})(?!\w)", text, re.IGNORECASE):
            around = text[max(0, found.start() - 30) : found.end() + 30].strip()
            yield f'"{found[0]}": write {instead} ({around})'
