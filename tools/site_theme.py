"""What the site adds to Sphinx: buttons, words of the glossary, formulas, search, descriptions."""

import json
import re
from html import escape, unescape
from typing import Any

import site_pages
import site_search
import site_words
from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator

PARAGRAPH = re.compile(r'<p(?: class="hero-about")?>(.*?)</p>', re.DOTALL)
TAG = re.compile(r"<[^>]+>")
HEADERLINK = re.compile(r'<a class="headerlink".*?</a>', re.DOTALL)
NUMBER = re.compile(r'<td( class="[^"]*")?>(<p>[\d.,]+ [^<]{1,12}</p>)</td>')
"""A cell with a number and its unit, which stay on one line."""
EMPTY_HEADER = re.compile(r'<th class="head[^"]*">(<p></p>)?</th>')
CELL = re.compile(r"<td\b.*?</td>", re.DOTALL)
CODE = re.compile(r'(?<=<span class="pre">)[^<]+')
NONE_FOUND = (
    "Your search did not match any documents. Please make sure that all words are spelled"
    " correctly and that you've selected enough categories."
)
"""What Sphinx's search page says of no results; this site has no categories."""
ONE_FOUND = "Search finished, found one page matching the search query."
"""What Sphinx's search page says; its catalogues have an empty text for it in every language."""
LONGEST = 200
"""Letters of a page's description, at most."""


def formula(writer: HTML5Translator, node: nodes.math) -> None:
    """Write a formula within a line as MathML, which browsers draw without a script."""
    writer.body.append(tex2mathml(node.astext(), as_block=False))
    raise nodes.SkipNode


def formula_block(writer: HTML5Translator, node: nodes.math_block) -> None:
    """Write a formula on lines of its own as MathML."""
    writer.body.append(f'<div class="math">{tex2mathml(node.astext(), as_block=True)}</div>')
    raise nodes.SkipNode


def description(body: str) -> str:
    """Returns the beginning of a page's first paragraph, as plain text.

    Example:
        >>> description("<h1>A</h1><p>Some <em>words</em> &amp; more.</p>")
        'Some words & more.'
    """
    found = PARAGRAPH.search(HEADERLINK.sub("", body))
    text = " ".join(unescape(TAG.sub("", found[1])).split()) if found else ""
    return text if len(text) <= LONGEST else text[:LONGEST].rsplit(" ", 1)[0] + " …"


def breaking(code: re.Match[str]) -> str:
    """Returns code with places where a narrow table may break a name.

    Example:
        >>> CODE.sub(breaking, '<span class="pre">jax.device_putAll</span>')
        '<span class="pre">jax.<wbr>device_<wbr>put<wbr>All</span>'
    """
    return re.sub(r"(?<=\w[._/=(])(?=\w)|(?<=[a-z])(?=[A-Z])", "<wbr>", code[0])


def button(name: str, text: str, url: str, icon: str) -> dict[str, str]:
    """Returns a button above a page, as the theme wants it."""
    kinds = {"type": "link", "url": url, "icon": icon, "label": f"site-{name}-button"}
    return {**kinds, "tooltip": text, "text": ""}


def buttons(app: Sphinx, page: str) -> list[dict[str, Any]]:
    """Returns the buttons that the site adds above a page."""
    facts: dict[str, Any] = app.config.site_facts
    words = facts["words"]
    found: list[dict[str, Any]] = []
    name = page.removeprefix("notebooks/")
    origin = facts["origins"].get(page)
    if page.startswith("notebooks/"):
        if facts["repository"]:
            address = f"https://colab.research.google.com/github/{facts['repository']}/blob/main"
            found.append(button("colab", words["colab"], f"{address}/{origin}", "fas fa-play"))
        top = "../../" if page in facts["english"] else "../"
        link = f"{top}downloads/{name}.ipynb"
        found.append(button("download", words["download"], link, "fas fa-download"))
    if facts["repository"] and origin:
        link = f"https://github.com/{facts['repository']}/blob/main/{origin}"
        found.append(button("source", words["source"], link, "fab fa-github"))
    if len(facts["languages"]) > 1:
        top = "../" * page.count("/") + ("" if app.config.language == "en" else "../")
        choices = []
        for code, language in facts["languages"].items():
            link = f"{top}{'' if code == 'en' else f'{code}/'}{page}.html"
            choices.append({**button(code, language, link, ""), "text": language, "tooltip": ""})
        found.append(
            {
                "type": "group",
                "buttons": choices,
                "icon": "fas fa-language",
                "tooltip": words["switch"],
                "label": "site-language-button",
            }
        )
    return found


def complete(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Add to a page what the theme has not."""
    del template
    facts = app.config.site_facts
    if page == app.config.root_doc:
        context["docstitle"] = ""  # the front page is not called by the site's name twice
    context["header_buttons"] = buttons(app, page) + context["header_buttons"]
    if page == "search":
        texts: dict[str, Any] = {NONE_FOUND: facts["words"]["nothing found"]}
        if facts["words"]["found"]:
            texts[ONE_FOUND] = [facts["words"]["found"]]
        said, english = json.dumps(texts), json.dumps(facts["english"])
        app.add_js_file(None, body=f"Object.assign(Documentation.TRANSLATIONS, {said});")
        app.add_js_file(None, body=f"const englishPages = {english};")
    if doctree is None:  # the search page, the index
        return
    body = context["body"]
    said = facts["descriptions"].get(page) or description(body)
    context["metatags"] += f'<meta name="description" content="{escape(said)}" />\n'
    copy, copied = (escape(facts["words"][name]) for name in ("copy", "copied"))
    context["metatags"] += f'<meta name="copy-code" content="{copy}" data-done="{copied}" />\n'
    body = EMPTY_HEADER.sub("<td></td>", body)
    body = NUMBER.sub(r'<td\1><div class="number">\2</div></td>', body)
    body = CELL.sub(lambda cell: CODE.sub(breaking, cell[0]), body)
    body = site_words.explained(body, facts["meanings"])
    if page in facts["english"]:
        notice = escape(facts["words"]["untranslated"])
        body = f'<p class="untranslated">{notice}</p><div lang="en">{body}</div>'
    if page.startswith("notebooks/"):
        said = f"{facts['words']['run with']}: {facts['versions']}"
        body += f'<p class="run-with"><a href="../works_with.html">{said}</a></p>'
    context["body"] = body


def anchored(app: Sphinx, doctree: nodes.document) -> None:
    """Give the sections of a translated page the English page's anchors, in place of `id1`.

    Raises:
        ValueError: If the page has more or fewer headings than the English one.
    """
    titles = app.config.site_facts["titles"].get(app.env.docname)
    if titles is None:
        return
    found = list(doctree.findall(nodes.section))
    if len(found) != len(titles):
        said = f"{len(found)} headings, and {len(titles)} in English"
        raise ValueError(f"{app.env.docname} ({app.config.language}) has {said}.")
    taken: set[str] = set()
    for section, title in zip(found, titles, strict=True):
        name = nodes.make_id(title)
        if name and name not in taken:
            section["ids"].insert(0, name)
        taken.add(name)


def numbered(app: Sphinx, doctree: nodes.document) -> None:
    """Write a lesson's number before its title, after the title has become the anchor."""
    folder, _, name = app.env.docname.partition("/")
    title = next(iter(doctree.findall(nodes.title)), None)
    if folder == "notebooks" and title is not None:
        title.insert(0, nodes.Text(site_pages.number(name)))


def listed(app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Keep the columns of a module's indented lists of names, which are no quotations."""
    del app, name, thing, options
    last = ""
    for number, line in enumerate(lines if what == "module" else []):
        if line.startswith("    ") and not last.startswith(" ") and not last.endswith(":"):
            lines[number:number] = [".. code-block:: text", ""]
            return
        last = line or last


def add_settings(app: Sphinx) -> None:
    """Register what is here; conf.py's `setup`."""
    app.add_config_value("site_facts", {}, "html")
    app.add_html_math_renderer("mathml", (formula, None), (formula_block, None))
    app.add_search_language(site_search.Search)
    app.add_search_language(site_search.SearchKorean)
    app.add_search_language(site_search.SearchJapanese)
    app.connect("autodoc-process-docstring", listed, priority=400)  # before napoleon
    app.connect("doctree-read", anchored, priority=100)  # before Sphinx lists the sections
    app.connect("doctree-read", numbered, priority=101)
    app.connect("html-page-context", complete, priority=900)
