"""The notebooks as one collection: the same parts in each, links that work, one glossary.

What a lesson owes its reader besides, `make check` holds it to.
"""

import re
from functools import cache
from pathlib import Path
from urllib.parse import unquote

import nbformat
from _tools import ROOT, tool

markdown = tool("markdown_text")
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
START, *LESSONS = NOTEBOOKS
TRANSLATED = sorted((ROOT / "notebooks").glob("[a-z][a-z]/*.ipynb"))
MARKDOWN = ("README*.md", "docs/*.md", "docs/??/*.md")
PAGES = [*NOTEBOOKS, *TRANSLATED, *(path for name in MARKDOWN for path in ROOT.glob(name))]
SECTIONS = ("When it goes wrong", "On real hardware", "Exercises", "Parallel equals serial")
DRAWS = re.compile(
    r"\bplt\.show\(\)|\blayouts\.draw\(|\bplots\.(?!use_style)\w+\(|\bpuzzles\.check\("
)
GLOSSARY = "../docs/glossary.md"


@cache
def cells(path: Path, kind: str) -> list[str]:
    notebook = nbformat.read(path, as_version=4)
    return [cell.source for cell in notebook.cells if cell.cell_type == kind]


def text(path: Path) -> str:
    """Everything a page says in Markdown."""
    is_notebook = path.suffix == ".ipynb"
    return "\n\n".join(cells(path, "markdown")) if is_notebook else path.read_text()


def test_there_is_one_start_page_and_the_lessons_are_numbered_without_gaps():
    numbers = [int(path.name.split("_")[0]) for path in NOTEBOOKS]
    assert START.stem == "00_start_here"
    assert numbers == list(range(len(NOTEBOOKS)))
    for number, path in enumerate(LESSONS, 1):
        assert text(path).startswith(f"# {number}. "), path.name


def test_it_has_the_sections_every_lesson_has_numbered_in_order(subtests):
    for path in LESSONS:
        with subtests.test(path.stem):
            titles = re.findall(r"^## (.*)$", text(path), re.M)
            *numbered, last = titles
            assert last == "What you have seen"
            assert [int(title.split(". ")[0]) for title in numbered] == list(range(1, len(titles)))
            plain = [title.split(". ", 1)[1] for title in numbered]
            for name in SECTIONS:
                assert len([title for title in plain if title.startswith(name)]) == 1, name


def test_it_claims_nothing_without_an_assert_and_draws(subtests):
    for path in LESSONS:
        with subtests.test(path.stem):
            code = cells(path, "code")
            assert sum(cell.count("assert ") for cell in code) >= 7
            assert any(DRAWS.search(cell) for cell in code)


def test_links_lead_somewhere_in_jupyterlab_and_on_github(subtests):
    titles = {path: [title for _, title in markdown.headings(text(path))] for path in PAGES}
    for path in PAGES:
        with subtests.test(str(path.relative_to(ROOT))):
            wrong = []
            for target in map(unquote, markdown.targets(text(path))):
                if re.match(r"[a-z]+:", target):
                    continue
                name, _, wanted = target.partition("#")
                page = (path.parent / name).resolve() if name else path
                # JupyterLab keeps capitals; of the glossary GitHub takes these as well.
                kept = page.suffix == ".ipynb" or page.name == "glossary.md"
                anchors = [markdown.anchor(title, kept) for title in titles.get(page, [])]
                if not page.exists() or (wanted and wanted not in anchors):
                    wrong.append(target)
                elif path in NOTEBOOKS and re.match(r"\d\d_", name):
                    wrong.append(f"{target} leads nowhere from a copy in work/")
            assert wrong == []


def test_it_ends_with_a_link_to_the_next_lesson_and_one_to_the_glossary(subtests):
    for path, following in zip(LESSONS, [*LESSONS[1:], None], strict=True):
        with subtests.test(path.stem):
            targets = markdown.targets(cells(path, "markdown")[-1])
            assert following is None or f"../notebooks/{following.name}" in targets
            assert any(target.partition("#")[0] == GLOSSARY for target in targets)


def test_the_start_page_leads_to_every_lesson_and_to_the_one_glossary():
    targets = set(markdown.targets(text(START)))
    assert {GLOSSARY, *(f"../notebooks/{path.name}" for path in LESSONS)} <= targets
    assert not any("# Glossary" in text(path) for path in LESSONS)
