"""The notebooks as one collection: the same parts in each, links that work, one glossary.

What the glossary itself must be like is in test_glossary.py.
"""

import re
from pathlib import Path
from urllib.parse import unquote

import nbformat
from _tools import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
START, *LESSONS = NOTEBOOKS
SECTIONS = ("When it goes wrong", "On real hardware", "Exercises", "Parallel equals serial")
DRAWS = re.compile(
    r"\bplt\.show\(\)|\blayouts\.draw\(|\bplots\.(?!use_style)\w+\(|\bpuzzles\.check\("
)
GLOSSARY = "../docs/glossary.md"
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")


def text(path: Path) -> str:
    """Everything a notebook says in Markdown."""
    cells = nbformat.read(path, as_version=4).cells
    return "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")


def code(path: Path) -> list[str]:
    cells = nbformat.read(path, as_version=4).cells
    return [cell.source for cell in cells if cell.cell_type == "code"]


def headings(path: Path) -> list[str]:
    return re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", text(path), flags=re.S | re.M), re.M)


def last_words(path: Path) -> str:
    cells = nbformat.read(path, as_version=4).cells
    return [cell.source for cell in cells if cell.cell_type == "markdown"][-1]


def test_there_is_one_start_page_and_the_lessons_are_numbered_without_gaps():
    numbers = [int(path.name.split("_")[0]) for path in NOTEBOOKS]
    assert START.stem == "00_start_here"
    assert numbers == list(range(len(NOTEBOOKS)))


def test_it_begins_with_what_the_reader_will_have_seen_and_how_long_it_takes(subtests):
    for path in NOTEBOOKS:
        with subtests.test(path.stem):
            first = nbformat.read(path, as_version=4).cells[0].source
            assert re.match(r"# \w", first)
            assert re.search(r"^At the end you will have", first, re.M)
            assert re.search(r"\bAbout \d+ minutes? to read\b", first)


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
            cells = code(path)
            assert sum("assert " in cell for cell in cells) >= 7
            assert any(DRAWS.search(cell) for cell in cells)


def test_its_links_within_the_collection_lead_somewhere(subtests):
    for path in NOTEBOOKS:
        with subtests.test(path.stem):
            wrong = []
            for target in LINK.findall(text(path)):
                if re.match(r"[a-z]+:", target):
                    continue
                name, _, anchor = target.partition("#")
                page = path.parent / unquote(name) if name else path
                if not page.is_file():
                    wrong.append(target)
                elif anchor and page.suffix == ".ipynb":
                    # JupyterLab's anchors: the heading with hyphens for spaces.
                    anchors = {title.replace(" ", "-") for title in headings(page)}
                    if unquote(anchor) not in anchors:
                        wrong.append(target)
            assert wrong == []


def test_it_ends_with_a_link_to_the_next_lesson_and_one_to_the_glossary(subtests):
    for path in LESSONS:
        with subtests.test(path.stem):
            targets = LINK.findall(last_words(path))
            following = LESSONS[LESSONS.index(path) + 1 :][:1]
            for notebook in following:
                assert f"../notebooks/{notebook.name}" in targets
            assert any(target.partition("#")[0] == GLOSSARY for target in targets)


def test_the_start_page_leads_to_every_lesson():
    assert {f"../notebooks/{path.name}" for path in LESSONS} <= set(LINK.findall(text(START)))


def test_links_between_lessons_work_from_a_copy_in_work(subtests):
    for path in NOTEBOOKS:
        with subtests.test(path.stem):
            assert [link for link in LINK.findall(text(path)) if re.match(r"\d\d_", link)] == []


def test_there_is_one_glossary_to_which_the_start_page_leads():
    assert GLOSSARY in LINK.findall(text(START))
    assert not any("Glossary" in heading for path in LESSONS for heading in headings(path))
