"""What the site shows differently than JupyterLab and GitHub do: pages change as Sphinx reads them.

Sphinx, MyST-NB and the theme do the rest; docs/site/conf.py has their settings.
"""

import json
import posixpath
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import badges
from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from myst_parser.slugs import github_slugify
from site_search import Search
from sphinx.application import Sphinx
from translation_pages import switch
from translation_store import known_languages, languages_of

ROOT = Path(__file__).resolve().parent.parent
GLOSSARY = "docs/glossary"
LANGUAGES = {"en": "English"} | {code: one.name for code, one in known_languages().items()}
FOLDS = {"source_hidden": "hide-input", "outputs_hidden": "hide-output"}
"""What JupyterLab folds in a cell, and MyST-NB's tag for it."""
WORDS = {
    "en": [("Show the code", "Hide the code"), ("Show the answer", "Hide the answer")],
    "ko": [("코드 보기", "코드 숨기기"), ("정답 보기", "정답 숨기기")],
    "ja": [("コードを表示", "コードを隠す"), ("答えを見る", "答えを隠す")],
}
"""What to click there. Folded outputs answer what the reader is asked to predict."""
LESSONS = {
    "Keras on JAX": ["notebooks/0[1-4]*"],
    "TensorFlow": ["notebooks/0[5-9]*"],
    "PyTorch": ["notebooks/1[0-3]*"],
    "Many processes, many machines": ["notebooks/1[4-6]*"],
    "By hand, and in numbers": ["notebooks/1[7-9]*", "notebooks/2*"],
}
"""The groups of the side bar."""
BEGIN = ("docs/machines", "docs/online", "docs/package")
PROJECT = ("docs/contributing", "docs/house", "docs/writing")
BADGE = re.compile(rf" ?{badges.BADGE.pattern}(?:\n\n)?")
"""What tools/stamp.py adds below titles: a picture from another server. Pages have a button."""
FRAGMENT = re.compile(r"(\]\([\w./-]*#)([^)\s]+)(?=\))")
"""A link to a heading: JupyterLab keeps capitals and dots in anchors, GitHub and the site don't."""
FLOWCHART = re.compile(r"^```mermaid\n(.*?)^```\n", re.DOTALL | re.MULTILINE)
NAMED = re.compile(
    r"""(?:title=|[xy]label=|set_title\(|suptitle\(|set_[xy]label\()f?["']([^"'{]+)"""
)
"""What a plot's code calls it, or its axes."""


@cache
def repository() -> str:
    """Returns the OWNER/NAME that the notebooks are stamped with; nothing if they are not."""
    start = ROOT / "notebooks" / "00_start_here.ipynb"
    return badges.repository_in(start.read_text(encoding="utf-8"))


def language_of(page: str) -> str:
    """Returns the language of a page.

    Example:
        >>> language_of("README.ja"), language_of("notebooks/00_start_here")
        ('ja', 'en')
    """
    return next((one for one in re.split(r"[./]", page) if one in LANGUAGES), "en")


def tree(caption: str, *pages: str) -> str:
    """Returns a list of pages for the side bar."""
    return "\n".join(
        ["", "```{toctree}", ":hidden:", ":glob:", f":caption: {caption}", "", *pages, "```", ""]
    )


def contents() -> str:
    """Returns the pages of the side bar, in its groups."""
    docs = [f"docs/{path.stem}" for path in sorted((ROOT / "docs").glob("*.md"))]
    begin = [name for name in docs if name in BEGIN]
    others = [name for name in docs if name not in (GLOSSARY, *BEGIN, *PROJECT)]
    shelves: dict[str, Sequence[str]] = {
        "Begin": ["notebooks/00*", *begin],
        **LESSONS,
        "Reference": [GLOSSARY, *others],
        "API": ["docs/site/api/*"],
        "Project": PROJECT,
    }
    for code, language in LANGUAGES.items():
        if (ROOT / f"README.{code}.md").exists():
            shelves[language] = [f"README.{code}", f"docs/{code}/*", f"notebooks/{code}/*"]
    return "".join(tree(caption, *names) for caption, names in shelves.items())


def layers(flowchart: re.Match[str]) -> str:
    """Returns Mermaid's drawing of layers as lines, which need no script."""
    rows = [re.findall(r'\["(\w+)"\]', part) for part in flowchart[1].split("subgraph")[1:]]
    return "\n".join(["```text", *("   ".join(row) for row in rows), "```", ""])


def markdown(text: str) -> str:
    """Returns a page's Markdown as the site needs it."""
    text = FRAGMENT.sub(lambda found: found[1] + github_slugify(found[2]), BADGE.sub("", text))
    return FLOWCHART.sub(layers, text)


def lesson(name: str, language: str, text: str) -> str:
    """Returns a notebook as MyST-NB needs it to fold what JupyterLab folds, and to describe plots.

    Args:
        name: Its file's name.
        language: Its language.
        text: The file's content.
    """
    notebook = json.loads(text)
    heading = ""
    for cell in notebook["cells"]:
        source, told = "".join(cell["source"]), cell["metadata"]
        if cell["cell_type"] == "markdown":
            cell["source"] = markdown(source)
            heading = re.findall(r"^#+ (.*)$", f"# {heading}\n{source}", re.MULTILINE)[-1]
            continue
        called = "; ".join(dict.fromkeys(NAMED.findall(source))) or heading
        shown: dict[str, Any] = {"image": {"alt": f"Plot: {re.sub(r'[`*$]', '', called)}"}}
        told["mystnb"] = shown
        folds = [fold for fold in FOLDS if told.get("jupyter", {}).get(fold)]
        if folds:
            told.setdefault("tags", []).append("hide-cell" if folds[1:] else FOLDS[folds[0]])
            words = WORDS[language][folds[-1] == "outputs_hidden"]
            shown["code_prompt_show"], shown["code_prompt_hide"] = words
    if language == "en":
        there = languages_of(ROOT, name)
        line = f"\n{switch(f'notebooks/{name}', 'en', there)}\n" if there else ""
        title, end, rest = notebook["cells"][0]["source"].partition("\n")
        notebook["cells"][0]["source"] = f"{title}{end}{line}{rest}"
    return json.dumps(notebook)


def read(app: Sphinx, page: str, source: list[str]) -> None:
    """Change a page that Sphinx has just read."""
    path = Path(app.env.doc2path(page))
    if path.suffix == ".ipynb":
        source[0] = lesson(path.name, language_of(page), source[0])
    else:
        source[0] = markdown(source[0]) + (contents() if page == "README" else "")
    if page.rpartition("/")[2] == "glossary":  # no heading of the second level is there
        source[0] = re.sub(r"^##(#+ )", r"#\1", source[0], flags=re.MULTILINE)


def numbered(app: Sphinx, doctree: nodes.document) -> None:
    """Write a lesson's number before its title; other lessons call it by its number."""
    found = re.search(r"notebooks/(?:\w\w/)?0*([1-9]\d*)_", app.env.docname)
    title = next(iter(doctree.findall(nodes.title)), None)
    if found and title is not None and not title.astext()[0].isdigit():
        title.insert(0, nodes.Text(f"{found[1]}. "))


def explained(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Let each link to a word of the glossary say what the word means, below the pointer."""
    meanings: dict[str, dict[str, str]] = {}
    for link in doctree.findall(nodes.reference):
        target, _, name = link.get("refuri", "").partition("#")
        if not name or not re.search(r"(^|/)glossary\.html$", target):
            continue
        # Each language has a glossary of its own.
        aim = posixpath.normpath(posixpath.join(posixpath.dirname(page), target))
        if aim not in meanings:
            meanings[aim] = {
                one: " ".join(part.next_node(nodes.paragraph).astext().split())
                for part in app.env.get_doctree(aim.removesuffix(".html")).findall(nodes.section)
                for one in part["ids"]
            }
        link["reftitle"] = meanings[aim][name]


def listed(_app: Sphinx, what: str, _name: str, _thing: Any, _given: Any, lines: list[str]) -> None:
    """Keep the columns of a module's indented lists of names, which are no quotations."""
    last = ""
    for number, line in enumerate(lines if what == "module" else []):
        if line.startswith("    ") and not last.startswith(" ") and not last.endswith(":"):
            lines[number:number] = [".. code-block:: text", ""]
            return
        last = line or last


def formula(writer: Any, node: nodes.Element) -> None:
    """Write a formula as MathML, by docutils: browsers draw it without a script."""
    writer.body.append(tex2mathml(node.astext(), as_block=isinstance(node, nodes.math_block)))
    raise nodes.SkipNode


def in_place(_app: Sphinx, page: str, _template: str, context: dict[str, Any], *_more: Any) -> None:
    """Say in which language a page is, and where the site is: a server sends 404.html anywhere."""
    context["language"] = language_of(page)
    if page == "404":
        name = repository().partition("/")[2]  # GitHub Pages has the site below the project's
        context["metatags"] = f'<base href="/{name}/">' if name else '<base href="/">'


def setup(app: Sphinx) -> dict[str, bool]:
    """Register what is here."""
    app.add_html_math_renderer("mathml", (formula, None), (formula, None))
    app.add_search_language(Search)
    app.connect("source-read", read)
    app.connect("doctree-read", numbered, priority=400)  # before Sphinx collects titles
    app.connect("doctree-resolved", explained)
    app.connect("autodoc-process-docstring", listed, priority=400)  # before napoleon
    app.connect("html-page-context", in_place)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
