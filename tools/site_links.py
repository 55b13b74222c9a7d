"""The links of the site: heading anchors as the notebooks use them, and links that lead nowhere.

JupyterLab makes an anchor of a heading by putting hyphens for spaces and keeps capitals; GitHub
makes all letters small and leaves out punctuation. The notebooks use the first form, README.md
and the pages in docs the second. The site understands both.
"""

import posixpath
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

FENCE = re.compile(r"^ *(```+|~~~+).*?^ *\1[ \t]*$", re.DOTALL | re.MULTILINE)
HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)
# A link or a picture; what is inside backticks comes first, so that it is left alone.
LINK = re.compile(
    r"(`+)(?!`).+?(?<!`)\1(?!`)|(?<=\]\()[^()\s]+(?:\([^()\s]*\)[^()\s]*)*", re.DOTALL
)
OUTSIDE = re.compile(r"^[a-zA-Z][a-zA-Z0-9+.-]*:|^//")
PLAIN = re.compile(r'</?span(?: class="[^"]*")?>')
"""Tags that only colour code: most of a page's, without links or anchors."""


def anchor(title: str) -> str:
    """Returns a heading's anchor as JupyterLab makes it.

    Example:
        >>> anchor("Global batch")
        'Global-batch'
    """
    return title.replace(" ", "-")


def github_anchor(title: str) -> str:
    """Returns a heading's anchor as GitHub makes it.

    Example:
        >>> github_anchor("Who saves, and when?")
        'who-saves-and-when'
    """
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def headings(text: str) -> list[str]:
    r"""Returns the headings of a Markdown page, without marks.

    Example:
        >>> headings("# The `Job`\n\n## [A link](a.md)\n")
        ['The Job', 'A link']
    """
    plain = FENCE.sub("", text)
    titles = [re.sub(r"\]\([^)]*\)", "", title) for title in HEADING.findall(plain)]
    return [re.sub(r"[`*\[]", "", title) for title in titles]


def same_anchor(wanted: str, titles: Iterable[str]) -> str | None:
    """Returns the anchor that a link means, in JupyterLab's form; None if there is no heading."""
    titles = list(titles)
    for form in (anchor, github_anchor):
        for title in titles:
            if form(title) == unquote(wanted):
                return anchor(title)
    return None


def relinked(text: str, change: Callable[[str], str]) -> str:
    """Returns a Markdown page with each link's target changed; code stays as it is.

    Example:
        >>> relinked("[a](b.md), `[a](b.md)`", str.upper)
        '[a](B.MD), `[a](b.md)`'
    """

    def new(found: re.Match[str]) -> str:
        return found[0] if found[0].startswith("`") else change(found[0])

    parts: list[str] = []
    end = 0
    for fence in FENCE.finditer(text):
        parts += [LINK.sub(new, text[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, LINK.sub(new, text[end:])])


def pages(site: Path) -> list[Path]:
    """Returns the pages of the built site; the theme keeps templates beside its scripts."""
    return sorted(path for path in site.rglob("*.html") if "_static" not in path.parts)


class Page(HTMLParser):
    """What a built page refers to, and what in it can be referred to.

    Attributes:
        ids: The anchors.
        links: The targets of links, pictures, scripts and styles.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.feed(PLAIN.sub("", text))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the tag's anchor and where it leads."""
        del tag
        for name, value in attrs:
            if name == "id" and value:
                self.ids.add(value)
            elif name in ("href", "src") and value:
                self.links.append(value)


def read(path: Path) -> Page:
    """Returns what a built page refers to."""
    return Page(path.read_text(encoding="utf-8"))


def dead_links(site: Path) -> list[str]:
    """Returns a line for each link from a page of the site to a page, file or anchor that is not.

    Args:
        site: The folder with the built site.
    """
    files = {path.relative_to(site).as_posix() for path in site.rglob("*") if path.is_file()}
    built = {path.relative_to(site).as_posix(): read(path) for path in pages(site)}
    dead = []
    for name, page in built.items():
        for link in dict.fromkeys(page.links):
            if OUTSIDE.match(link):
                continue
            parts = urlsplit(link)
            path = posixpath.join(posixpath.dirname(name), unquote(parts.path))
            target = posixpath.normpath(path) if parts.path else name
            if target not in files:
                target = posixpath.normpath(posixpath.join(target, "index.html"))
            if target not in files:
                dead.append(f"{name}: there is no {link}")
            elif target in built and unquote(parts.fragment) not in built[target].ids | {""}:
                dead.append(f"{name}: nothing is at {link}")
    return dead


def outside(site: Path) -> dict[str, str]:
    """Returns the addresses that the site links to elsewhere, each with a page that does."""
    found: dict[str, str] = {}
    for path in pages(site):
        for link in read(path).links:
            if link.startswith(("https://", "http://")):
                found.setdefault(link.partition("#")[0], str(path.relative_to(site)))
    return found


def answer(address: str) -> str:
    """Returns what is wrong with an address on the network; nothing if a server has the page."""
    said = ""
    for method in ("HEAD", "GET"):  # some servers refuse the first
        request = urllib.request.Request(address, method=method)
        request.add_header("User-Agent", "Mozilla/5.0 (link check)")
        try:
            with urllib.request.urlopen(request, timeout=20):
                return ""
        except urllib.error.HTTPError as error:
            said = f"{error.code} {error.reason}"
        except (OSError, ValueError) as error:
            return str(getattr(error, "reason", error))
    return said


def dead_outside(site: Path) -> Iterator[str]:
    """Yields a line for each address elsewhere that does not answer."""
    found = outside(site)
    with ThreadPoolExecutor(8) as pool:
        for (address, page), said in zip(found.items(), pool.map(answer, found), strict=True):
            if said:
                yield f"{page}: {address}: {said}"
