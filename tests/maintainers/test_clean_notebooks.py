"""`make clean-notebooks` in a real repository: lessons as shipped, nothing of a reader's lost."""

import json
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from _tools import TOOLS, tool

LESSON = "notebooks/02_two.ipynb"
NEIGHBOUR = "notebooks/01_one.ipynb"


class Clone:
    """A repository with two lessons and this project's tool."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "notebooks").mkdir(parents=True)
        (root / ".gitignore").write_text("/work/\n")
        for name in (NEIGHBOUR, LESSON):
            cells = [
                nbformat.v4.new_markdown_cell("# A title"),
                nbformat.v4.new_code_cell("print(1)"),
            ]
            nbformat.write(nbformat.v4.new_notebook(cells=cells), root / name)
        self.git("init", "--quiet")
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message=all")

    def git(self, *words: str) -> str:
        command = ["git", "-c", "user.name=A", "-c", "user.email=a@localhost", *words]
        ran = subprocess.run(command, cwd=self.root, capture_output=True, text=True, check=True)
        return ran.stdout

    def clean(self, **variables: str) -> tuple[int, str]:
        code = "import clean_notebooks as c, pathlib, sys; sys.exit(c.clean(pathlib.Path.cwd()))"
        ran = subprocess.run(
            [sys.executable, "-c", code],
            cwd=self.root,
            env=os.environ | {"PYTHONPATH": str(TOOLS)} | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        return ran.returncode, ran.stdout

    def change(self, source: str | None = None, output: str | None = None) -> None:
        notebook = nbformat.read(self.root / LESSON, as_version=4)
        if source:
            notebook.cells[1].source = source
        if output:
            notebook.cells[1].outputs = [nbformat.v4.new_output("stream", text=output)]
        nbformat.write(notebook, self.root / LESSON)

    def mine(self) -> list[str]:
        return sorted(path.name for path in self.root.glob("work/*"))

    def source_of(self, name: str, cell: int = 1) -> str:
        return json.loads((self.root / "work" / name).read_text())["cells"][cell]["source"]


@pytest.fixture
def clone(tmp_path) -> Clone:
    return Clone(tmp_path / "clone")


def test_what_was_not_changed_stays(clone):
    mine = clone.root / "notebooks" / "mine.ipynb"
    mine.write_text("a reader's own")
    assert clone.clean() == (0, "All lessons are as shipped.\n")
    assert mine.read_text() == "a reader's own"
    assert clone.mine() == []


def test_other_outputs_go_and_are_no_version_of_the_readers(clone):
    clone.change(output="2")
    code, said = clone.clean()
    assert code == 0
    assert said.startswith("02_two.ipynb is as shipped again; only outputs differed.\n")
    assert clone.git("status", "--porcelain") == ""
    assert clone.mine() == []


def test_each_version_that_a_reader_wrote_is_kept_and_named(clone):
    clone.change("print(2)")
    code, said = clone.clean()
    assert code == 0
    assert said.startswith(
        "02_two.ipynb is as shipped again; your version is work/02_two_mine.ipynb.\n"
    )
    assert clone.git("status", "--porcelain") == ""
    assert clone.source_of("02_two_mine.ipynb") == ["print(2)"]
    clone.change("print(3)")
    clone.git("add", LESSON)
    clone.change("print(4)")
    said = clone.clean()[1]
    assert "work/02_two_mine_2.ipynb and work/02_two_mine_3.ipynb" in said
    assert clone.git("status", "--porcelain") == ""
    assert clone.source_of("02_two_mine.ipynb") == ["print(2)"]
    both = [clone.source_of(f"02_two_mine_{number}.ipynb") for number in (2, 3)]
    assert sorted(both) == [["print(3)"], ["print(4)"]]


def test_a_lesson_deleted_and_one_that_is_no_notebook_any_more(clone):
    (clone.root / NEIGHBOUR).unlink()
    (clone.root / LESSON).write_text("<<<<<<< conflict")
    assert clone.clean()[0] == 0
    assert clone.git("status", "--porcelain") == ""
    assert clone.mine() == ["02_two_mine.ipynb"]
    assert (clone.root / "work" / "02_two_mine.ipynb").read_text() == "<<<<<<< conflict"


def test_a_translated_lesson_is_signed_and_brought_back_and_kept_in_a_folder_of_its_own(clone):
    path = clone.root / "notebooks" / "ko" / "02_two.ipynb"
    path.parent.mkdir()
    path.write_bytes((clone.root / LESSON).read_bytes())
    clone.git("add", "--all")
    clone.git("commit", "--quiet", "--message=translated")
    trust = tool("trust")
    assert list(trust.shipped(clone.root)) == ["01_one.ipynb", "02_two.ipynb", "ko/02_two.ipynb"]
    shipped = path.read_bytes()
    assert trust.contents(clone.root).count(shipped) == 2
    path.write_bytes(shipped.replace(b"print(1)", b"print(2)"))
    assert trust.contents(clone.root).count(shipped) == 2, "what a reader changed is not signed"
    code, said = clone.clean()
    assert code == 0
    assert said.startswith(
        "ko/02_two.ipynb is as shipped again; your version is work/ko/02_two_mine.ipynb.\n"
    )
    assert path.read_bytes() == shipped
    assert clone.source_of("ko/02_two_mine.ipynb") == ["print(2)"]
    (clone.root / ".git").rename(clone.root / ".elsewhere")
    assert len(trust.contents(clone.root)) == 3, "an unpacked archive has translated lessons, too"


def test_in_the_middle_of_a_merge(clone):
    clone.git("branch", "other")
    clone.change("print(2)")
    clone.git("commit", "--quiet", "--all", "--message=mine")
    clone.git("checkout", "--quiet", "other")
    clone.change("print(3)")
    clone.git("commit", "--quiet", "--all", "--message=theirs")
    with pytest.raises(subprocess.CalledProcessError):
        clone.git("merge", "--quiet", "-")
    assert clone.clean()[0] == 0
    assert "print(3)" in (clone.root / LESSON).read_text()
    assert "<<<<<<<" in (clone.root / "work" / "02_two_mine.ipynb").read_text()


@pytest.mark.parametrize("missing", ["git", "clone"])
def test_without_git_nothing_is_changed_and_it_says_what_to_do(clone, tmp_path, missing):
    clone.change("print(2)")
    before = (clone.root / LESSON).read_bytes()
    if missing == "git":
        code, said = clone.clean(PATH=str(tmp_path))
    else:
        (clone.root / ".git").rename(tmp_path / "elsewhere")
        code, said = clone.clean(GIT_CEILING_DIRECTORIES=str(tmp_path))
    assert code == 1
    assert said.startswith("Nothing was changed: ")
    assert (clone.root / LESSON).read_bytes() == before
    assert clone.mine() == []


def test_below_a_repository_of_something_else(tmp_path):
    outer = Clone(tmp_path / "outer")
    inner = Clone(tmp_path / "outer" / "work" / "inner")
    (inner.root / ".git").rename(tmp_path / "elsewhere")
    inner.change("print(2)")
    assert inner.clean()[0] == 1
    assert outer.git("status", "--porcelain") == ""
