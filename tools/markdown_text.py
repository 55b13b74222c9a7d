"""What a page in Markdown is made of: blocks, code, links, headings and their anchors."""

import re
from collections.abc import Callable
from dataclasses import dataclass

FENCE = re.compile(r"^```.*?^```[ \t]*$", re.DOTALL | re.MULTILINE)
CODE = re.compile(rf"({FENCE.pattern}|(?<!`)`[^`]+`(?!`))", re.DOTALL | re.MULTILINE)
TARGET = re.compile(r"(?<=\]\()[^)\s]+(?=\))|(?<=\bsrc=\")[^\"]+(?=\")|(?<=\bhref=\")[^\"]+(?=\")")
HEADING = re.compile(r"^(#{1,6}) +(.*?)[ \t]*$", re.MULTILINE)
RULE = re.compile(r"\|[\s:|-]+\|")
"""The row of a table that separates its head from its body."""
MARK = re.compile(r"<!-- (.+?) -->")
ALONE = re.compile(r"\||#{1,6} |<!-- .* -->$|```")
"""Begins a line that is no part of the paragraph above."""


@dataclass(frozen=True)
class Block:
    """A part of a page that is translated as one, or copied.

    Attributes:
        section: The headings above it, such as `Machines / A smaller PyTorch`.
        number: Its place in the section among what is translated, from 1; 0 if it is copied.
        text: The block, without a newline at its end.
        gap: The newlines that follow it.
    """

    section: str
    number: int
    text: str
    gap: str

    @property
    def key(self) -> str:
        """The name under which its translation is kept."""
        return f"{self.section} {self.number}"


def blocks(page: str) -> list[Block]:
    r"""Returns a page's blocks in order; joined with their gaps they are the page.

    A paragraph, a list, a heading and a row of a table are one block each. Fenced code, the rules
    of tables, comments, what stands between the marks of a generated part, and the line of
    languages are copied.

    Example:
        >>> [(block.key, block.text) for block in blocks("# T\n\nOne\nline.\n")]
        [('T 1', '# T'), ('T 2', 'One\nline.')]
    """
    found = []
    titles: list[str] = []
    counts: dict[str, int] = {}
    generated = ""
    for text, gap in _pieces(page):
        if heading := HEADING.fullmatch(text):
            titles = [*titles[: max(len(heading[1]) - 2, 0)], heading[2]]
        section = " / ".join(titles)
        mark = MARK.fullmatch(text)
        code = FENCE.fullmatch(text) or RULE.fullmatch(text)
        if generated or mark or code or is_switch(text):
            number = 0
        else:
            number = counts[section] = counts.get(section, 0) + 1
        if mark:
            generated = "" if mark[1] == f"end of {generated}" else mark[1]
        found.append(Block(section, number, text, gap))
    return found


def is_switch(text: str) -> bool:
    """Tells whether a block of an English page is the line that leads to its translations."""
    return text == "English" or text.startswith("English · ")


def _pieces(page: str) -> list[tuple[str, str]]:
    """Returns each block's text and the newlines behind it."""
    pieces: list[list[str]] = []
    goes_on = in_fence = False
    for line in page.splitlines():
        is_alone = bool(ALONE.match(line))
        if in_fence or (goes_on and line.strip() and not is_alone):
            pieces[-1][0] += f"\n{line}"
        elif line.strip():
            pieces.append([line, "\n"])
        else:
            pieces[-1][1] += "\n"
        if line.startswith("```"):
            in_fence = not in_fence
        goes_on = bool(line.strip()) and not is_alone
    return [(text, gap) for text, gap in pieces]


def outside_code(text: str, change: Callable[[str], str]) -> str:
    """Returns the text with everything but fenced and inline code changed.

    Example:
        >>> outside_code("a `b` c", str.upper)
        'A `b` C'
    """
    parts = CODE.split(text)
    return "".join(part if place % 2 else change(part) for place, part in enumerate(parts))


def targets(text: str) -> list[str]:
    """Returns where the links and pictures of a text lead, in order."""
    return TARGET.findall(CODE.sub("`", text))


def prose(text: str) -> str:
    """Returns a text without its code, its comments and the targets of its links.

    Example:
        >>> prose("Read `x`, [here](page.md).")
        'Read  , [here]( ).'
    """
    return TARGET.sub(" ", MARK.sub(" ", CODE.sub(" ", text)))


def headings(text: str) -> list[tuple[int, str]]:
    """Returns the level and the title of each heading."""
    return [(len(mark), title) for mark, title in HEADING.findall(FENCE.sub("", text))]


def anchor(title: str, is_notebook: bool) -> str:
    """Returns what a link to a heading ends with.

    Args:
        title: The heading, without its marks.
        is_notebook: JupyterLab's anchors keep capitals and punctuation, GitHub's do not.

    Example:
        >>> anchor("In your own code", False), anchor("In your own code", True)
        ('in-your-own-code', 'In-your-own-code')
    """
    if is_notebook:
        return title.replace(" ", "-")
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
