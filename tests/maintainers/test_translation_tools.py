"""How translated pages are made and checked, on small texts."""

import json

from _tools import tool

translations = tool("translations")
code = tool("translated_code")
pages = tool("translation_pages")
store = tool("translation_store")
checks = tool("translation_checks")


def test_of_a_changed_cell_only_what_has_changed_is_english(subtests):
    language = store.Language("ko", "한국어", "", "", "> 영어", "영어")
    translation = pages.Translation(language)
    old = "## Use\n\nOne.\n\nTwo.\n\n| a |\n| --- |\n| b |\n\n```sh\nls\n```"
    entry = store.Entry(old, "## 쓰기\n\n하나.\n\n둘.\n\n| 가 |\n| --- |\n| 나 |\n\n```sh\nls\n```")
    cases = {
        ("One.", "1."): ("하나.", "> 영어\n\n1."),
        ("One.\n\nTwo.", "1.\n\n2."): ("하나.\n\n둘.", "> 영어\n\n1.\n\n2."),
        ("| b |", "| c |\n| d |"): ("| 나 |", "| c *(영어)* |\n| d *(영어)* |"),
        ("## Use", "## Try"): ("## 쓰기", "## Try\n\n> 영어"),
        ("ls", "ls -l"): ("ls", "ls -l"),
        ("Two.\n\n", ""): ("둘.\n\n", ""),
    }
    for change_english, change_text in cases.items():
        with subtests.test(change_english[1]):
            renewed = translation._renewed(old.replace(*change_english), entry)
            assert renewed == entry.text.replace(*change_text)
    nothing_left = "## Try\n\n1.\n\n2."
    assert translation._renewed(nothing_left, entry) == "## Try\n\n> 영어\n\n1.\n\n2."
    other_parts = store.Entry(old, "## 쓰기\n\n하나. 둘.")
    assert pages.translated_blocks(other_parts) == {}


CODE = """\
import distlab  # first

# and why: a reason
# of two lines
plots.use_style()
x = {"model": f"{n} devices {'a b':4}"}
print(x["model"], "two words")"""
WORDS = {
    "# first": "# 처음",
    "# and why: a reason\n# of two lines": "# 이유",
    """f"{n} devices {'a b':4}\"""": """f"장치 {n}개 {'가':3}\"""",
    '"two words"': '"두 낱말"',
}


def test_code_is_translated_but_for_what_names_something():
    cells = [
        {"id": "1", "cell_type": "code", "source": [CODE], "outputs": [], "execution_count": 1}
    ]
    notebook = {"cells": cells}
    assert code.renewed_words(notebook, {}) == dict.fromkeys(WORDS, "")
    assert list(code.problems_of_words(WORDS)) == []
    changed = code.translated_code(CODE, WORDS, "ko")
    assert (
        changed
        == """\
import distlab  # 처음

# 이유
plots.use_style("ko")
x = {"model": f"장치 {n}개 {'가':3}"}
print(x["model"], "두 낱말")"""
    )
    kept = {**cells[0], "source": changed.splitlines(keepends=True), "outputs": ["its own"]}
    for earlier, outputs in ((kept, ["its own"]), (cells[0], [])):
        written = {"cells": [{**cells[0], "outputs": ["the English one's"]}]}
        code.with_words(written, WORDS, "ko", {"cells": [earlier]})
        assert written["cells"][0]["outputs"] == outputs
    has_not_run = "not all of its cells have run: tools/notebooks.py run, with the notebook's path"
    assert list(code.problems_of_code(notebook, WORDS, written)) == [has_not_run]


def test_a_translation_of_code_that_would_change_it_is_refused(subtests):
    for remark, text, problem in (
        ("# a reason", "", "is not translated"),
        ("# a reason", "# 이\n유", "each line of a comment begins with #"),
        ('"two words"', "'두 낱말'", "no string with the same prefix and quotes"),
        ('"two words"', '"두" + x + "낱말"', "no string with the same prefix and quotes"),
        ('f"{n} devices"', 'f"장치 {m}개"', "has other fields"),
        ('"%d devices"', '"장치 %s개"', "has other fields"),
    ):
        with subtests.test(text):
            (found,) = code.problems_of_words({remark: text})
            assert problem in found


def test_a_paragraph_that_moves_keeps_its_translation_and_a_new_one_is_marked(tmp_path):
    language = store.Language("ko", "한국어", "번역했습니다.", "코드는 영어", "> 영어", "영어")
    (tmp_path / "translations" / "ko").mkdir(parents=True)
    words = {name: word for name, word in vars(language).items() if name != "code"}
    (tmp_path / "translations" / "languages.json").write_text(json.dumps({"ko": words}))
    table = "| a |\n| --- |\n| b |"
    old = f"# Lab\n\nEnglish\n\nA lab.\n\n## Use\n\nOne.\n\n{table}\n\nSee [here](#use).\n"
    (tmp_path / "README.md").write_text(old)
    entries = {}
    for key, english in pages.units("README.md", old).items():
        text = {"## Use": "## 쓰기", "One.": "하나."}.get(english, english)
        entries[key] = store.Entry(english, text)
    store.stored_at(tmp_path, "ko", "README.md").write_text(store.dumped(entries))
    translations.write(tmp_path)
    switch = "[English](README.md) · 한국어"
    assert (tmp_path / "README.ko.md").read_text() == (
        f"# Lab\n\n{switch}\n\nA lab.\n\n번역했습니다.코드는 영어\n\n"
        f"## 쓰기\n\n하나.\n\n{table}\n\nSee [here](#쓰기).\n"
    )
    assert "\n\nEnglish · [한국어](README.ko.md)\n\n" in (tmp_path / "README.md").read_text()
    changed = {"One.": "New.\n\nOne.", "| b |": "| c |\n| b |", "See [here]": "See now [here]"}
    new = (tmp_path / "README.md").read_text()
    for before, after in changed.items():
        new = new.replace(before, after)
    (tmp_path / "README.md").write_text(new)
    written = pages.Translation(language, tmp_path).written("README.md")
    assert written.partition("## 쓰기\n\n")[2] == (
        "> 영어\n\nNew.\n\n하나.\n\n| a |\n| --- |\n| c *(영어)* |\n| b |\n\n"
        "> 영어\n\nSee now [here](#쓰기).\n"
    )
    told = [paragraph.split("\n") for paragraph in translations.stale(tmp_path)]
    assert told == [
        ["ko README.md: Use 2 is missing", "  +New."],
        ["ko README.md: Use 5 is missing", "  +| c |"],
        ["ko README.md: Use 7 is stale", "  -See [here](#use).", "  +See now [here](#use)."],
    ]


def test_what_a_translation_loses_or_makes_up_is_named(subtests):
    cases = {
        "See [it](a.md).": ("보기", "lacks links: a.md"),
        "See it.": ("[보기](b.md)", "has links that the English text does not have: b.md"),
        "Call `fit`.": ("호출", "lacks code: `fit`"),
        "All 1,536 images": ("이미지 1536장", "lacks the number 1,536"),
        "# One": ("하나", "lacks levels of headings: 1"),
        "- one\n- two": ("- 하나, 둘", "lacks items of lists and rows of tables: -"),
        "<details>a</details>": ("<details>", "lacks tags: </details"),
        "A mesh.": ("그물", "translates 'mesh' as none of: 메시"),
        "Meshes": ("", "it is empty"),
    }
    words = {"mesh": ["메시"]}
    for english, (text, problem) in cases.items():
        with subtests.test(english):
            entry = store.Entry(english, text)
            assert problem in list(checks.problems(entry, words))
    entry = store.Entry("Eight `a` meshes.", "`a` 그물 8개", {"mesh": ""})
    assert list(checks.problems(entry, words)) == [
        "is free to translate 'mesh', and does not say why",
    ]
