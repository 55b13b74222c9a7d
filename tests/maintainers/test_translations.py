"""Translated pages: true to the English ones, and no translation out of date unseen.

That those of this project are up to date is what `make check` says.
"""

import csv
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import mistune
import pytest
from _tools import ROOT, tool

translations = tool("translations")
translated_code = tool("translated_code")
pages = tool("translation_pages")
store = tool("translation_store")

START = "notebooks/00_start_here.ipynb"
NOTEBOOKS = sorted(ROOT.glob("notebooks/[a-z][a-z]/*.ipynb"))
TRANSLATED = [*NOTEBOOKS, *sorted(ROOT.glob("README.*.md")), *sorted(ROOT.glob("docs/??/*.md"))]


def cells(path: Path) -> list[dict]:
    return json.loads(path.read_text())["cells"]


def texts(path: Path) -> list[str]:
    """What a translated page says in Markdown."""
    if path.suffix == ".md":
        return [path.read_text()]
    return ["".join(cell["source"]) for cell in cells(path) if cell["cell_type"] == "markdown"]


@pytest.fixture
def project(tmp_path) -> Path:
    """README, the start page and their translations, where they may be changed."""
    shutil.copytree(ROOT / "translations", tmp_path / "translations")
    for path in sorted((tmp_path / "translations").glob("*/*.json")):
        if path.stem not in ("README", "00_start_here"):
            path.unlink()
    for name in (START, pages.place(START, "ko"), "README.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    for translation in pages.translations(tmp_path):  # what is stale today is no matter here
        for page in translation.pages:
            current = [match for match in translation.matches(page)[0] if match.state == "current"]
            path = store.stored_at(tmp_path, translation.language.code, page)
            path.write_text(store.dumped(store.rekeyed(current)))
    translations.write(tmp_path)
    return tmp_path


def entries(project: Path, code: str) -> dict:
    """What is stored for the start page."""
    return store.load(store.stored_at(project, code, START))


def change(path: Path, at: int, old: str, new: str) -> str:
    """Change a cell of a notebook, and return its id."""
    notebook = json.loads(path.read_text())
    cell = notebook["cells"][at]
    source = "".join(cell["source"])
    assert source.count(old) == 1
    cell["source"] = source.replace(old, new).splitlines(keepends=True)
    path.write_text(json.dumps(notebook))
    return cell["id"]


def python(source: str) -> str:
    """What a cell does: its tokens without comments, with what strings say left out."""
    code = translated_code.REMARK.sub(lambda remark: "" if remark[0][0] == "#" else '""', source)
    for style in ('plots.use_style("")', "\n\ndistlab.plots.use_style()"):
        code = code.replace(style, "plots.use_style()" if style[0] == "p" else "")
    return re.sub(r"\s+", " ", code).strip()


def test_code_outputs_and_metadata_are_the_english_ones(subtests):
    """Of lessons whose code is translated: the code but for what it says."""
    for path in NOTEBOOKS:
        with subtests.test(str(path.relative_to(ROOT))):
            english = cells(ROOT / "notebooks" / path.name)
            there = cells(path)
            language = store.known_languages()[path.parent.name]
            has_words = pages.Translation(language).words(f"notebooks/{path.name}")
            assert [cell["id"] for cell in there] == [cell["id"] for cell in english]
            for ours, theirs in zip(there, english, strict=True):
                if has_words:
                    assert ours["metadata"] == theirs["metadata"]
                    if theirs["cell_type"] == "code":
                        assert python("".join(ours["source"])) == python("".join(theirs["source"]))
                        assert ours["execution_count"] == theirs["execution_count"]
                elif theirs["cell_type"] == "code":
                    assert ours == theirs
                else:
                    assert ours["metadata"] == theirs["metadata"]
                    assert set(ours) == set(theirs)


def test_no_emphasis_is_shown_as_asterisks(subtests):
    """An asterisk between a bracket and a letter without a space begins and ends nothing."""
    render = mistune.create_markdown(plugins=["table"])
    for path in TRANSLATED:
        with subtests.test(str(path.relative_to(ROOT))):
            html = render("\n\n".join(texts(path)))
            shown = re.sub(r"<pre>.*?</pre>|<code>.*?</code>", "", html, flags=re.S)
            assert re.findall(r".{0,30}\*.{0,30}", re.sub(r"<[^>]+>", "", shown)) == []


def test_a_changed_english_cell_is_named_shown_and_stays_english_and_one_that_is_gone_goes(project):
    before = list(translations.stale(project))
    identity = change(project / START, 0, "Several devices", "A few devices")
    known = [code for code in store.known_languages() if identity in entries(project, code)]
    assert known, "the first cell of the start page is translated to no language"
    new = [paragraph for paragraph in translations.stale(project) if paragraph not in before]
    told = [paragraph for paragraph in new if paragraph.startswith(tuple(known))]
    assert [paragraph.partition("\n")[0] for paragraph in told] == [
        f"{code} {START}: {identity} is stale" for code in known
    ]
    for paragraph in told:
        assert "\n  -Several devices can" in paragraph
        assert "\n  +A few devices can" in paragraph
    assert {pages.place(START, code) for code in known} <= set(translations.outdated(project))
    translations.write(project)
    assert translations.outdated(project) == []
    for code in known:
        mark = store.known_languages(project)[code].untranslated
        first = "".join(cells(project / pages.place(START, code))[0]["source"])
        assert f"\n\n{mark}\n\nA few devices can train" in first
        assert "At the end you will have" not in first, "a paragraph that has not changed"
        assert first.count(mark) == 1
    notebook = json.loads((project / START).read_text())
    gone = list(entries(project, "ko"))[-1]
    notebook["cells"] = [cell for cell in notebook["cells"] if cell["id"] != gone]
    (project / START).write_text(json.dumps(notebook))
    named = f"ko {START}: {gone}: the English page has no such block: make translations"
    assert named in list(translations.wrong(project))
    translations.write(project)
    assert list(translations.wrong(project)) == []
    assert gone not in entries(project, "ko")


def test_what_a_reader_does_not_see_makes_nothing_stale(project):
    before = list(translations.stale(project))
    change(project / START, 0, "Several devices can", "Several\ndevices can")
    change(project / START, 3, 'print(len(devices), "devices")', "print(len(devices))")
    assert list(translations.stale(project)) == before
    for code in store.known_languages():
        page = project / pages.place(START, code)
        if page.exists():
            assert str(page.relative_to(project)) in translations.outdated(project)
    translations.write(project)
    # The Korean lesson has outputs of its own, and one of its cells is another one now.
    (told,) = translations.wrong(project)
    assert told.startswith(f"ko {START}: not all of its cells have run")


def test_a_sheet_that_is_taken_again_changes_nothing_and_a_bad_one_is_refused(project):
    translation, page = pages.Translation(store.known_languages()["ko"], project), START
    stored = store.stored_at(project, "ko", page)
    before = stored.read_text()
    sheet = translations.sheet(translation, page, everything=True)
    assert translations.take(translation, page, sheet) == len(store.load(stored))
    assert stored.read_text() == before
    text = next(iter(entries(project, "ko").values())).text
    with pytest.raises(SystemExit, match=r"has links .* y\.md"):
        translations.take(translation, page, sheet.replace(text, f"{text} [x](y.md)"))
    with pytest.raises(SystemExit, match="no part with a translation"):
        translations.take(translation, page, translations.SHEET_HEAD)
    assert stored.read_text() == before


def test_the_glossary_has_each_term_once_with_both_translations_and_a_source():
    with (ROOT / "translations" / "glossary.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) >= 100
    terms = [row["term"].lower() for row in rows]
    assert terms == sorted(set(terms))
    for row in rows:
        assert set(row) == {"term", *store.known_languages(), "source"}
        assert all(value.strip() == value != "" for value in row.values()), row
        assert re.fullmatch(
            r"distlab|(docs-l10n|tutorials-kr) [\w/.]+\.(ipynb|rst|md)", row["source"]
        )


def test_pytest_runs_the_english_notebooks_alone():
    command = [sys.executable, "-m", "pytest", "--nbval", "--collect-only", "-q", "notebooks"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    collected = {line.partition("::")[0] for line in ran.stdout.splitlines() if "::" in line}
    english = {f"notebooks/{path.name}" for path in (ROOT / "notebooks").glob("*.ipynb")}
    assert collected == english, ran.stdout
