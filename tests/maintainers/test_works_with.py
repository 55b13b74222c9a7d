"""What is said to be broken still is, and what is made on pages is what was run."""

import json
import re

import pytest
from _tools import ROOT, tool

breakages = tool("breakages")
works_with = tool("works_with")
readme = tool("readme")


@pytest.mark.parametrize("known", breakages.BREAKAGES, ids=lambda b: b.what.replace("`", ""))
def test_what_the_lessons_warn_of_is_still_broken(known):
    if not known.applies():
        pytest.skip("about other versions")
    assert known.state() == "broken", "mended? Then the lessons' warning can go"


def test_a_program_says_which_of_three(tmp_path, subtests):
    for code, state in (
        ("print('WORKS')", "mended"),
        ("raise KeyError('the sign')", "broken"),
        ("print('NO WORKS'); raise KeyError('else')", None),
    ):
        with subtests.test(code):
            (tmp_path / "it.py").write_text(code)
            program = str(tmp_path / "it")
            found = breakages.Breakage("", "", (), "KeyError: 'the sign'", program).state()
            assert found == state if state else "KeyError: 'else'" in found


def test_a_breakage_of_other_versions_does_not_apply():
    def applies(*needs):
        return breakages.Breakage("", "", needs, "", "").applies()

    assert applies("numpy>=1")
    assert not applies("numpy>=1", "numpy<1")
    assert not applies("a-package-that-nobody-has")


def test_the_tables_and_the_picture_are_those_of_the_runs_and_of_the_notebooks():
    for path, text in readme.written().items():
        assert path.read_text() == text, f"{path.name}: run python tools/readme.py"
    assert readme.every_way().count("\n") == 21
    assert "float32[784, 128] on 8 devices: data=2, model=4" in readme.picture()


def test_every_lesson_was_run_with_every_set_and_passed():
    runs = works_with.stored()
    names = {path.name for path in works_with.lessons()}
    assert {"pinned", "Colab's"} <= set(runs)
    for name, found in runs.items():
        assert found["lessons"] == dict.fromkeys(sorted(names), "passed"), name
        wrong = {w for w in found["breakages"].values() if w not in ("broken", "other versions")}
        assert wrong == set(), name


def test_the_pinned_run_is_about_what_is_pinned():
    pins = dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.M))
    pins = {name.replace("-", "_"): number for name, number in pins.items()}
    versions = json.loads((ROOT / "docs/works_with.json").read_text())["pinned"]["versions"]
    for name, number in versions.items():
        assert name == "Python" or pins[name.replace("-", "_")] == number
