"""The glossary: in order, without doubles, and where lessons link to it."""

import re

import nbformat
import pytest
from _lessons import prose, save
from _tools import ROOT, tool

GLOSSARY = ROOT / "docs" / "glossary.md"
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
TO_GLOSSARY = re.compile(r"\]\(\.\./docs/glossary\.md#([^)\s]+)\)")


def terms(text: str) -> list[str]:
    return re.findall(r"^### (.*)$", text, re.M)


def anchors(text: str) -> set[str]:
    """As JupyterLab makes them: the heading with hyphens for spaces."""
    return {term.replace(" ", "-") for term in terms(text)}


def dead_links(notebook) -> list[str]:
    cells = nbformat.read(notebook, as_version=4).cells
    text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    return [name for name in TO_GLOSSARY.findall(text) if name not in anchors(GLOSSARY.read_text())]


def test_the_terms_are_in_order_and_each_is_there_once():
    found = terms(GLOSSARY.read_text())
    assert len(found) > 50
    assert found == sorted(set(found), key=str.lower)


def test_an_anchor_is_the_same_on_github_but_for_capitals():
    """GitHub leaves out whatever is no letter, digit, space or hyphen."""
    assert [t for t in terms(GLOSSARY.read_text()) if not re.fullmatch(r"[A-Za-z0-9 -]+", t)] == []


def test_each_term_is_explained_in_one_to_three_sentences(subtests):
    for entry in re.split(r"^### ", GLOSSARY.read_text(), flags=re.M)[1:]:
        term, text = entry.split("\n", 1)
        with subtests.test(term):
            plain = tool("cells").prose(text)
            assert 1 <= len(re.findall(r"[.](?=\s|$)", plain)) <= 3
            assert list(tool("worst_words").worst_words(plain)) == []


def test_its_own_links_lead_to_terms():
    text = GLOSSARY.read_text()
    assert [name for name in re.findall(r"\]\(#([^)]+)\)", text) if name not in anchors(text)] == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_links_of_a_lesson_lead_to_terms(path):
    assert dead_links(path) == []


def test_a_link_to_no_term_is_named(tmp_path):
    text = "See [ring](../docs/glossary.md#ring) and [rings](../docs/glossary.md#rings)."
    assert dead_links(save(tmp_path / "small.ipynb", [prose(text)])) == ["rings"]
