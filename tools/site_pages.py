"""The pages that the site has and the repository has not: README's sections, lessons, the front."""

import json
import re
from dataclasses import dataclass
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORDS: dict[str, dict[str, str]] = json.loads(
    (ROOT / "docs" / "site" / "words.json").read_text(encoding="utf-8")
)
"""The site's own words, in each language it may have."""
# Each page of README's sections. The order on a page is the order here; sections that are not
# here come last on the first page.
SECTIONS = {
    "start": ("Start", "With conda", "Machines"),
    "lessons": ("Lessons",),
    "your_code": ("In your own code",),
    "colab": ("In Colab",),
    "field": ("The field in one table",),
    "works_with": ("Works with",),
}
ELSEWHERE = ("The site", "Contributing", "Licence")
"""README's sections that say what the site or other pages of it do."""
ROW = re.compile(
    r"^\| \[([^]]+)\]\(notebooks/(?:\w\w/)?([\w.-]+)\.ipynb\)[^|]*\| (.*?) \| (.*?) \| (.*?) \|$",
    re.MULTILINE,
)
PART = re.compile(
    # A row that is still in English is marked so before the lesson.
    r"^\| (?:\*\*(.+?)\*\*[^|]*|\*\([^|]*)? ?\| \[[^]]+\]\([^)]*?([\w-]+)\.ipynb\) \| (.*?) \|$",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Lesson:
    """A lesson, as README's table and the start page's have it.

    Attributes:
        name: Its notebook's name, without the ending.
        title: Its title.
        seen: What a reader will have seen.
        framework: What it uses.
        time: How long it takes to read.
        part: The part of the course that it belongs to.
        why: What to read it for.
    """

    name: str
    title: str
    seen: str
    framework: str
    time: str
    part: str
    why: str


def sections(readme: str) -> dict[str, str]:
    """Returns the sections of README.md, by their headings; what comes first has none."""
    parts = re.split(r"^## (.*)$", readme, flags=re.MULTILINE)
    return {"": parts[0], **dict(zip(parts[1::2], parts[2::2], strict=True))}


def lessons(readme: str, start: str) -> list[Lesson]:
    """Returns the lessons, in README's order.

    Args:
        readme: README.md's text.
        start: The start page's text, whose table names the parts.

    Raises:
        ValueError: If a lesson of one table is not in the other.
    """
    parts: dict[str, tuple[str, str]] = {}
    part = ""
    for named, name, why in PART.findall(start):
        part = named or part
        parts[name] = part, why
    rows = ROW.findall(readme)
    if missing := {name for _, name, *_ in rows} ^ set(parts):
        raise ValueError(
            f"README.md and the start page should have the same lessons; only one has {missing}."
        )
    return [
        Lesson(name, title, seen, framework, time, *parts[name])
        for title, name, seen, framework, time in rows
    ]


def readme_pages(english: str, translated: str) -> dict[str, str]:
    """Returns the pages that are made of README's sections, by their names.

    Args:
        english: README.md's text.
        translated: The same in the page's language, section for section.

    Raises:
        KeyError: If README lacks a section that a page is made of.
        ValueError: If the translation has more or fewer sections.
    """
    names = list(sections(english))
    if len(names) != len(sections(translated)):
        raise ValueError("A translated README has not the sections of README.md: make translations")
    found = dict(zip(names, sections(translated).items(), strict=True))
    placed = {"", *ELSEWHERE, *(name for page in SECTIONS.values() for name in page)}
    more = [name for name in names if name not in placed]
    pages = {}
    for page, (first, *others) in SECTIONS.items():
        others += more if page == "start" else []
        title, text = found[first]
        parts = [f"# {title}\n{raised(text) if not others else text}"]
        parts += [f"## {found[name][0]}\n{found[name][1]}" for name in others]
        pages[page] = "".join(parts)
    return pages


def with_clone(page: str, repository: str) -> str:
    r"""Returns the page about installing with the commands that get the project, before `make lab`.

    Args:
        page: The page's text.
        repository: OWNER/NAME on GitHub; nothing if it is not known, and the page stays as it is.

    Raises:
        ValueError: If no block of commands begins with `make lab`.

    Example:
        >>> print(with_clone("# Start\n\n```sh\nmake lab\n```", "ada/lab"))
        # Start
        <BLANKLINE>
        ```sh
        git clone https://github.com/ada/lab
        cd lab
        make lab
        ```
    """
    if not repository:
        return page
    folder = repository.partition("/")[2]
    clone = f"git clone https://github.com/{repository}\ncd {folder}\n"
    before, block, after = page.partition("```sh\nmake lab")
    if not block:
        raise ValueError("README.md's section Start has no block that begins with `make lab`.")
    return before + block.replace("make lab", f"{clone}make lab") + after


def without_languages(text: str) -> str:
    r"""Returns a page without the line that leads to its translations: the site has a switch.

    Example:
        >>> without_languages("# A\n\nEnglish · [한국어](a.ko.md)\n\nText.")
        '# A\n\nText.'
    """
    names = "|".join(words["language"] for words in WORDS.values())
    name = rf"(?:{names}|\[(?:{names})\]\([^)]*\))"
    return re.sub(rf"^{name}(?: · {name})+\n\n", "", text, flags=re.MULTILINE)


def raised(text: str) -> str:
    """Returns a section with its headings one level higher."""
    return re.sub(r"^##(#+ )", r"#\1", text, flags=re.MULTILINE)


def inline(text: str) -> str:
    """Returns a line of Markdown as HTML: code, emphasis, and links' texts without links.

    Example:
        >>> inline("one `fit` & [more](a.md)")
        'one <code>fit</code> &amp; more'
    """
    text = re.sub(r"\[([^]]+)\]\([^)]*\)", r"\1", escape(text, quote=False))
    return re.sub(r"\*(.+?)\*", r"<em>\1</em>", re.sub(r"`([^`]+)`", r"<code>\1</code>", text))


def number(name: str) -> str:
    """Returns what to write before a lesson's title; other lessons call it by its number.

    Example:
        >>> number("04_sharded_transformer_keras"), number("00_start_here")
        ('4. ', '')
    """
    found = re.match(r"0*([1-9]\d*)_", name)
    return f"{found[1]}. " if found else ""


def lesson_map(found: list[Lesson]) -> str:
    """Returns the map of the lessons: one group for each part, one card for each lesson."""
    parts = list(dict.fromkeys(lesson.part for lesson in found))
    html = []
    for part in parts:
        html.append(f'<section class="part"><h3>{inline(part)}</h3><ul class="cards">')
        for lesson in found:
            if lesson.part == part:
                html.append(
                    f'<li><a class="card" href="notebooks/{lesson.name}.html">'
                    f'<span class="card-title">{number(lesson.name)}{inline(lesson.title)}</span>'
                    f'<span class="card-why">{inline(lesson.why)}</span>'
                    f'<span class="card-facts"><span>{inline(lesson.framework)}</span>'
                    f"<span>{inline(lesson.time)}</span></span></a></li>"
                )
        html.append("</ul></section>")
    return "\n".join(html)


def versions(readme: str) -> str:
    r"""Returns what the lessons were run with, from README's table.

    Example:
        >>> versions("| Python | 3.11.7 | 3.13.0 |\n| jax | 0.10.2 | 0.7.2 |\n| numpy | 2 | 2 |")
        'Python 3.11.7, jax 0.10.2'
    """
    named = r"^\| (Python|jax|keras|tensorflow|torch) \| ([\d.]+) \|"
    return ", ".join(map(" ".join, re.findall(named, readme, re.MULTILINE)))


def missing(language: str) -> str:
    """Returns the page that a server sends where there is none; no list and no search has it."""
    words = WORDS[language]
    return (
        f"---\norphan: true\nnosearch: true\n---\n\n"
        f"# {words['missing']}\n\n{words['missing text']}\n"
    )


def tree(caption: str, *pages: str) -> str:
    """Returns a list of pages for the side bar."""
    lines = ["```{toctree}", ":hidden:", f":caption: {caption}", "", *pages, "```"]
    return "\n".join(lines) + "\n"


def front(
    readme: str,
    found: list[Lesson],
    language: str,
    shelves: dict[str, list[str]],
    repository: str = "",
) -> str:
    """Returns the front page.

    Args:
        readme: README's text in the page's language.
        found: The lessons.
        language: The language's code.
        shelves: The other pages, by the captions of the side bar.
        repository: OWNER/NAME on GitHub, where it is known.
    """
    words = WORDS[language]
    title, about, *rest = without_languages(sections(readme)[""]).strip().split("\n\n")
    picture = next(paragraph for paragraph in rest if paragraph.startswith("!["))
    name = title.removeprefix("# ")
    alt, path = re.fullmatch(r"!\[(.*)\]\((.*)\)", picture, re.DOTALL).groups()  # type: ignore[union-attr]
    buttons = [
        ("primary", "notebooks/00_start_here.html", words["begin"]),
        ("secondary", "start.html", words["install"]),
        ("secondary", "lessons.html", words["all lessons"]),
    ]
    if repository:
        buttons.append(("secondary", f"https://github.com/{repository}", words["repository"]))
    hero = "".join(
        f'<a class="hero-{kind}" href="{link}">{text}</a>' for kind, link, text in buttons
    )
    parts = [
        f"# {name}\n",
        f'<div class="hero"><p class="hero-about">{inline(about)}</p>',
        f'<p class="hero-buttons">{hero}</p></div>\n',
        f"```{{image}} {path}\n:alt: {' '.join(alt.split())}\n:class: hero-picture\n```\n",
        "<!-- real run -->\n",
        f"## {words['map']}\n",
        f'<div class="map">\n{lesson_map(found)}\n</div>\n',
        tree(
            words["begin"],
            "notebooks/00_start_here",
            "start",
            "colab",
            "lessons",
        ),
    ]
    for part in dict.fromkeys(lesson.part for lesson in found):  # titles as on the map above
        entries = [
            f"{number(x.name)}{x.title} <notebooks/{x.name}>" for x in found if x.part == part
        ]
        parts.append(tree(part, *entries))
    parts += [tree(caption, *pages) for caption, pages in shelves.items()]
    return "\n".join(parts)
