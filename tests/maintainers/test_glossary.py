"""The glossary: in order, without doubles, short. Its links are tried in test_collection.py."""

import re

from _tools import ROOT, tool

TEXT = (ROOT / "docs" / "glossary.md").read_text()


def test_the_terms_are_in_order_once_each_and_their_anchors_the_same_on_github_but_for_capitals():
    """GitHub leaves out whatever is no letter, digit, space or hyphen."""
    terms = re.findall(r"^### (.*)$", TEXT, re.M)
    assert len(terms) > 50
    assert terms == sorted(set(terms), key=str.lower)
    assert [term for term in terms if not re.fullmatch(r"[A-Za-z0-9 -]+", term)] == []


def test_each_term_is_explained_in_one_to_three_sentences(subtests):
    for entry in re.split(r"^### ", TEXT, flags=re.M)[1:]:
        term, text = entry.split("\n", 1)
        with subtests.test(term):
            plain = tool("markdown_text").prose(text)
            assert 1 <= len(re.findall(r"[.](?=\s|$)", plain)) <= 3
            assert list(tool("worst_words").worst_words(plain)) == []
