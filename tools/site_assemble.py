"""The site as readers get it: each language's pages as Sphinx made them, what they share only once.

Sphinx gives every language scripts, styles and pictures of its own. Those that are the same as the
English ones stay at the top of the site, and the pages of all languages lead there.
"""

import json
import posixpath
import re
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path

import site_links

MADE = {"genindex.html", "search.html", "py-modindex.html"}
"""Pages that Sphinx adds."""
SHARED = re.compile(r'(?<= )((?:href|src)=")((?:\.\./)*_(?:static|images|downloads)/[^"?#]+)')
"""A page's reference to a script, a style, a picture or a file."""
THEME_WORDS: dict[str, dict[str, str]] = json.loads(
    (Path(__file__).resolve().parent.parent / "docs" / "site" / "theme_words.json").read_text(
        encoding="utf-8"
    )
)
"""What the theme says in English, in other languages: it has none or not all of these words."""
ARTICLE = re.compile(r"(<article\b.*?</article>)", re.DOTALL)
LISTED = re.compile(
    r'(<a class="(?:reference internal|left-prev|right-next)")\s+href="([^"#?]+\.html)"'
)
CARD = re.compile(r'(<a class="card") href="([^"]+)"')
"""Links to pages in the bars, and from the front page."""
NAMED = re.compile(r'(?<= )((?:title|aria-label|placeholder)=")([^"]*)(?=")')
"""A name that a pointer or a screen reader shows."""
BETWEEN_TAGS = re.compile(r"(>\s*)([A-Z][\w. ]*?)(?=\s*<)")
UNUSED = (
    ".map",
    ".buildinfo",
    "webpack-macros.html",
    "fontawesome.js",
    "fontawesome.js.LICENSE.txt",
)
"""Endings of files that no page needs: the scripts' sources, what Sphinx and the theme keep, and a
script of 1.5 MB that draws the icons, which a font draws as well."""
WITHOUT = re.compile(
    r"<script [^>]*fontawesome\.js[^>]*></script>\s*"
    r'|(?<=<summary) aria-label="Toggle hidden content"'
)
"""What the theme and MyST-NB write and the site leaves out: the script, and a name that would hide
from a screen reader what a fold says itself."""


def moved(page: str, name: str, own: Collection[str]) -> str:
    """Returns a page of a translation that takes what it shares from the English site above it.

    Args:
        page: The page's HTML.
        name: Its path in the folder of its language.
        own: The files that this language has for itself, relative to the same folder.

    Example:
        >>> moved('<img src="../_images/a.png">', "notebooks/01.html", own=())
        '<img src="../../_images/a.png">'
    """

    def new(found: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(name), found[2]))
        return found[0] if path in own else f"{found[1]}../{found[2]}"

    return SHARED.sub(new, page)


def in_its_language(page: str, words: Mapping[str, str]) -> str:
    """Returns a page whose theme speaks the page's language.

    Args:
        page: The page's HTML. Text of its article stays as it is, names in it do not.
        words: What to write for each word of the theme.

    Example:
        >>> in_its_language('<a title="Dark">Dark</a><article>Dark</article>', {"Dark": "ダーク"})
        '<a title="ダーク">ダーク</a><article>Dark</article>'
    """

    def new(found: re.Match[str]) -> str:
        return found[1] + words.get(found[2], found[2])

    parts = ARTICLE.split(NAMED.sub(new, page))
    parts[::2] = [BETWEEN_TAGS.sub(new, part) for part in parts[::2]]
    return "".join(parts)


def marked(page: str, name: str, english: Collection[str]) -> str:
    """Returns a page whose links in bars and cards say where they lead to English.

    Args:
        page: The page's HTML.
        name: Its path in the folder of its language.
        english: The pages of this language that are in English, relative to the same folder.

    Example:
        >>> marked('<a class="left-prev" href="b.html">', "docs/a.html", {"docs/b.html"})
        '<a class="left-prev" hreflang="en" href="b.html">'
    """

    def new(found: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(name), found[2]))
        return (
            f'{found[1]} hreflang="en"{found[0][len(found[1]) :]}' if path in english else found[0]
        )

    parts = ARTICLE.split(page)
    parts[::2] = [LISTED.sub(new, part) for part in parts[::2]]
    parts[1::2] = [CARD.sub(new, part) for part in parts[1::2]]
    return "".join(parts)


def assemble(
    made: dict[str, Path],
    kept: Mapping[str, Collection[str]],
    english: Mapping[str, Collection[str]],
    site: Path,
) -> None:
    """Put the site together, in place of what was there.

    Args:
        made: The folder that Sphinx wrote for each language, English first.
        kept: The pages of each language, relative to its folder. Others are of an earlier build.
        english: Those of them that a language has in English.
        site: The folder for the site. English goes to the top, each other language in a folder.
    """
    shutil.rmtree(site, ignore_errors=True)
    for language, folder in made.items():
        below = site if language == "en" else site / language
        pages = {path.relative_to(folder).as_posix(): path for path in site_links.pages(folder)}
        files = {
            path.relative_to(folder).as_posix(): path
            for path in folder.rglob("*")
            if path.is_file() and not path.name.endswith(UNUSED)
        }
        own = {
            name
            for name, path in files.items()
            if name not in pages and not (below != site and same(path, site / name))
        }
        for name in own:
            copy(files[name], below / name)
        for name in pages.keys() & {*kept[language], *MADE}:
            text = WITHOUT.sub("", pages[name].read_text(encoding="utf-8"))
            (below / name).parent.mkdir(parents=True, exist_ok=True)
            if below != site:
                text = in_its_language(moved(text, name, own), THEME_WORDS[language])
                text = marked(text, name, english[language])
            (below / name).write_text(text, encoding="utf-8")


def from_anywhere(page: str, repository: str) -> str:
    """Returns 404.html with links that hold at any address: a server sends it in place of any page.

    Args:
        page: The page's HTML, whose links are relative to the top of the site.
        repository: OWNER/NAME on GitHub, whose Pages have the site in a folder NAME; may be empty.

    Example:
        >>> from_anywhere("<head></head>", "ada/lab")
        '<head><base href="/lab/"></head>'
    """
    folder = f"/{repository.partition('/')[2]}/" if repository else "/"
    return page.replace("<head>", f'<head><base href="{folder}">', 1)


def same(one: Path, other: Path) -> bool:
    """Returns whether two files have the same content; one of them may be missing."""
    return other.exists() and one.read_bytes() == other.read_bytes()


def copy(path: Path, target: Path) -> None:
    """Copy a file to a folder that need not be there."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, target)
