"""`make clean-notebooks` in a real repository: lessons as shipped, nothing of a reader's lost."""

import json
import subprocess
from pathlib import Path

import nbformat
import pytest
from _tools import tool
from nbformat.sign import NotebookNotary

shipped = tool("shipped")
LESSON = "notebooks/02_two.ipynb"
NEIGHBOUR = "notebooks/01_one.ipynb"


class Clone:
    """A repository with two lessons."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "notebooks").mkdir(parents=True)
        (root / ".gitignore").write_text("/work/\n/.cache/\n")
        cells = [nbformat.v4.new_markdown_cell("# A title"), nbformat.v4.new_code_cell("print(1)")]
        for name in (NEIGHBOUR, LESSON):
            nbformat.write(nbformat.v4.new_notebook(cells=cells), root / name)
        self.git("init", "--quiet")
        self.commit()

    def git(self, *words: str) -> str:
        command = ["git", "-c", "user.name=A", "-c", "user.email=a@localhost", *words]
        return subprocess.check_output(command, cwd=self.root, text=True)

    def commit(self) -> None:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message=all")

    def change(self, source: str) -> None:
        notebook = nbformat.read(self.root / LESSON, as_version=4)
        notebook.cells[1].source = source
        nbformat.write(notebook, self.root / LESSON)

    def clean(self) -> None:
        """Clean; after that git sees no change."""
        assert shipped.bring_back(self.root) == 0
        assert self.git("status", "--porcelain") == ""

    def mine(self) -> dict[str, str]:
        """What is kept: the source of the second cell by the path below work/."""
        return {
            path.relative_to(self.root / "work").as_posix(): "".join(
                json.loads(path.read_text())["cells"][1]["source"]
            )
            for path in self.root.glob("work/**/*.ipynb")
        }


@pytest.fixture
def clone(tmp_path) -> Clone:
    return Clone(tmp_path / "clone")


def test_deleted_lessons_come_back_outputs_go_and_what_was_not_changed_stays(clone, capsys):
    clone.clean()
    assert capsys.readouterr().out == "All lessons are as shipped.\n"
    notebook = nbformat.read(clone.root / LESSON, as_version=4)
    notebook.cells[1].outputs = [nbformat.v4.new_output("stream", text="2")]
    nbformat.write(notebook, clone.root / LESSON)
    (clone.root / NEIGHBOUR).unlink()
    mine = clone.root / "notebooks" / "mine.ipynb"
    mine.write_text("a reader's own")
    assert shipped.bring_back(clone.root) == 0
    assert clone.git("status", "--porcelain") == "?? notebooks/mine.ipynb\n"
    said = capsys.readouterr().out
    assert "02_two.ipynb is as shipped again; only outputs differed.\n" in said
    assert mine.read_text() == "a reader's own"
    assert clone.mine() == {}


def test_each_version_that_a_reader_wrote_is_kept_and_named(clone, capsys):
    clone.change("print(2)")
    clone.clean()
    assert capsys.readouterr().out.startswith(
        "02_two.ipynb is as shipped again; your version is work/02_two_mine.ipynb.\n"
    )
    clone.change("print(3)")
    clone.git("add", LESSON)
    clone.change("print(4)")
    clone.clean()
    assert "work/02_two_mine_2.ipynb and work/02_two_mine_3.ipynb" in capsys.readouterr().out
    kept = clone.mine()
    assert kept.pop("02_two_mine.ipynb") == "print(2)"
    assert sorted(kept) == ["02_two_mine_2.ipynb", "02_two_mine_3.ipynb"]
    assert sorted(kept.values()) == ["print(3)", "print(4)"]


def test_a_translated_lesson_is_signed_and_brought_back_and_kept_in_a_folder_of_its_own(
    clone, monkeypatch, tmp_path
):
    def is_signed(lesson: bytes) -> bool:
        with NotebookNotary() as notary:
            return notary.check_signature(nbformat.reads(lesson.decode(), as_version=4))

    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "data"))
    path = clone.root / "notebooks" / "ko" / "02_two.ipynb"
    path.parent.mkdir()
    path.write_bytes((clone.root / LESSON).read_bytes())
    clone.commit()
    names = ["01_one.ipynb", "02_two.ipynb", "ko/02_two.ipynb"]
    assert list(shipped.shipped(clone.root)) == names
    before = path.read_bytes()
    path.write_bytes(before.replace(b"print(1)", b"print(2)"))
    assert shipped.sign(clone.root) == 3
    assert is_signed(before)
    assert not is_signed(path.read_bytes()), "what a reader changed is not signed"
    assert shipped.sign(clone.root) == 0, "once is enough"
    clone.clean()
    assert path.read_bytes() == before
    assert clone.mine() == {"ko/02_two_mine.ipynb": "print(2)"}
    (clone.root / ".git").rename(clone.root / ".elsewhere")
    assert shipped.sign(clone.root) == 3, "an unpacked archive has translated lessons, too"


def test_in_the_middle_of_a_merge(clone):
    clone.git("branch", "other")
    clone.change("print(2)")
    clone.commit()
    clone.git("checkout", "--quiet", "other")
    clone.change("print(3)")
    clone.commit()
    with pytest.raises(subprocess.CalledProcessError):
        clone.git("merge", "--quiet", "-")
    assert shipped.bring_back(clone.root) == 0
    assert "print(3)" in (clone.root / LESSON).read_text()
    assert "<<<<<<<" in (clone.root / "work" / "02_two_mine.ipynb").read_text()


@pytest.mark.parametrize("missing", ["git", "clone"])
def test_without_git_nothing_is_changed_and_it_says_what_to_do(
    clone, tmp_path, monkeypatch, capsys, missing
):
    clone.change("print(2)")
    before = (clone.root / LESSON).read_bytes()
    if missing == "git":
        monkeypatch.setenv("PATH", str(tmp_path))
    else:
        (clone.root / ".git").rename(tmp_path / "elsewhere")
        monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    assert shipped.bring_back(clone.root) == 1
    assert capsys.readouterr().err.startswith("Nothing was changed: ")
    assert (clone.root / LESSON).read_bytes() == before
    assert clone.mine() == {}


def test_below_a_repository_of_something_else(tmp_path):
    outer = Clone(tmp_path / "outer")
    inner = Clone(tmp_path / "outer" / "work" / "inner")
    (inner.root / ".git").rename(tmp_path / "elsewhere")
    inner.change("print(2)")
    assert shipped.bring_back(inner.root) == 1
    assert outer.git("status", "--porcelain") == ""
