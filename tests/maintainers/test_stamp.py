"""Stamping: what it writes, that it can be repeated and taken back, and what it refuses."""

import shutil
import subprocess
from pathlib import Path

import nbformat
import pytest
from _tools import ROOT, tool

stamping = tool("stamp")
notebooks = tool("notebooks")
setup_cell = tool("setup_cell").setup_cell
README = """\
# Lab

## Lessons

[Two](notebooks/two.ipynb): begin here. Then [one](notebooks/one.ipynb).

| lesson |
| --- |
| [One](notebooks/one.ipynb) | a thing | JAX | 5 min |

## Works with

| [One](notebooks/one.ipynb) | yes |

git clone https://github.com/OWNER/NAME lab
pip install "distlab @ git+https://github.com/OWNER/NAME"

Über
"""


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    """A project with two notebooks that have outputs, and a table that names one of them."""
    (tmp_path / "README.md").write_text(README)
    (tmp_path / "notebooks").mkdir()
    cells = [
        nbformat.v4.new_markdown_cell("# Título\n\nTwo sentences.\n\nAnd a third."),
        nbformat.v4.new_code_cell(setup_cell(), execution_count=1),
        nbformat.v4.new_code_cell(
            "print('é')",
            execution_count=2,
            outputs=[nbformat.v4.new_output("stream", name="stdout", text="é\n")],
        ),
    ]
    for name in ("one", "two"):
        text = notebooks.tidy(nbformat.v4.new_notebook(cells=cells))
        (tmp_path / "notebooks" / f"{name}.ipynb").write_text(text)
    monkeypatch.setattr(stamping, "ROOT", tmp_path)
    monkeypatch.setattr(stamping, "FOLDER", tmp_path / "notebooks")
    return tmp_path


def contents(project: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in [project / "README.md", *project.glob("n*/*")]}


def badge(repository: str, name: str) -> str:
    image = "https://colab.research.google.com/assets/colab-badge.svg"
    link = f"https://colab.research.google.com/github/{repository}/blob/main/notebooks/{name}.ipynb"
    return f"[![Open in Colab]({image})]({link})"


def cloned(project: Path, address: str) -> None:
    shutil.rmtree(project / ".git", ignore_errors=True)
    subprocess.run(["git", "init", "-q", project], check=True)
    if address:
        subprocess.run(["git", "-C", project, "remote", "add", "origin", address], check=True)


def test_a_stamp_is_an_address_and_badges_and_nothing_else(project):
    before = contents(project)
    assert stamping.main(["ada/dist.lab"]) == 0
    one, two = (badge("ada/dist.lab", name) for name in ("one", "two"))
    assert (project / "README.md").read_text() == (
        README.replace("two.ipynb):", f"two.ipynb) {two}:")
        .replace("one.ipynb) | a", f"one.ipynb) {one} | a")
        .replace("OWNER/NAME", "ada/dist.lab")
    )
    path = project / "notebooks" / "one.ipynb"
    expected = nbformat.reads(before[path], as_version=4)
    expected.cells[0].source = f"# Título\n\n{one}\n\nTwo sentences.\n\nAnd a third."
    expected.cells[1].source = setup_cell("git+https://github.com/ada/dist.lab")
    assert path.read_text() == nbformat.writes(expected) + "\n"
    assert notebooks.problems(path) == []


def test_it_can_be_repeated_changed_and_taken_back(project, capsys):
    before = contents(project)
    stamping.main(["ada/lab"])
    once = contents(project)
    capsys.readouterr()
    for again in ("ada/lab", "https://github.com/ada/lab.git"):  # an address of git's does as well
        assert stamping.main([again]) == 0
        assert "nothing" in capsys.readouterr().out
        assert contents(project) == once
    stamping.main(["grace/other"])
    assert not any(b"ada/lab" in text for text in contents(project).values())
    assert all(b"grace/other" in text for text in contents(project).values())
    stamping.main(["ada/lab"])
    assert contents(project) == once
    assert stamping.main(["--clear"]) == 0
    assert contents(project) == before


def test_without_a_name_it_is_where_the_clone_comes_from(project, capsys):
    cloned(project, "https://ada:secret@github.com/ada/dist.lab.git")
    assert stamping.main([]) == 0
    assert "secret" not in "".join(capsys.readouterr())
    cell = nbformat.read(project / "notebooks" / "two.ipynb", as_version=4).cells[1].source
    assert cell == setup_cell("git+https://github.com/ada/dist.lab")


def test_what_it_cannot_do_is_one_line_and_nothing_is_written(project, capfd, subtests):
    elsewhere = "https://ada:secret@gitlab.com/ada/lab.git"
    not_there = (
        "https://gitlab.com/ada/lab.git is not the address of a repository on GitHub, from where"
        " Colab opens notebooks. If they are there, too, name the place:"
        " make stamp REPO=OWNER/NAME."
    )
    no_name = "'ada/lab.git' is not of the form OWNER/NAME, as in ada/distlab."

    def refused(arguments: list[str], message: str) -> None:
        before = contents(project)
        with subtests.test(message):
            with pytest.raises(SystemExit) as refusal:
                stamping.main(arguments)
            assert str(refusal.value) == f"{message} Nothing was changed."
            assert contents(project) == before

    refused(["ada/lab.git"], no_name)
    refused([elsewhere], not_there)
    cloned(project, elsewhere)
    refused([], not_there)
    cloned(project, "")
    refused([], "Name the place, make stamp REPO=OWNER/NAME.")
    assert capfd.readouterr().err == "error: No such remote 'origin'\n"
    two = project / "notebooks" / "two.ipynb"
    two.write_text(two.read_text().replace("@title", "@Title"))
    refused(["ada/lab"], "two.ipynb does not begin with the set-up cell.")


def test_addresses_of_git_name_a_repository_on_github(subtests):
    for address in (
        "https://github.com/ada/dist.lab",
        "https://github.com/ada/dist.lab.git",
        "https://github.com/ada/dist.lab/",
        "https://ada:secret@github.com/ada/dist.lab.git",
        "git@github.com:ada/dist.lab.git",
        "git@github.com:ada/dist.lab",
        "github.com:ada/dist.lab.git",
        "ssh://git@github.com/ada/dist.lab.git",
        "ssh://git@ssh.github.com:443/ada/dist.lab.git",
    ):
        with subtests.test(address):
            assert stamping.repository_at(address) == "ada/dist.lab"
    for address in (
        "git@example.org:ada/lab.git",
        "https://github.com.example.org/ada/lab",
        "https://github.com/ada/lab/tree/main",
        "/srv/lab.git",
    ):
        with subtests.test(address), pytest.raises(SystemExit) as refused:
            stamping.repository_at(address)
        assert str(refused.value).startswith(f"{address} is not the address of a repository on")
    for wrong in (
        "lab", "ada/", "/lab", "a da/lab", "ada/lab/tree", "ada/lab.git", "ada/..", "ada/l)b",
        'ada/l"b', "-ada/lab", "ada/lab\n",
    ):  # fmt: skip
        with subtests.test(wrong), pytest.raises(SystemExit, match="OWNER/NAME"):
            stamping.stamp(wrong)


def test_every_lesson_of_this_project_has_the_same_set_up_cell_and_gets_one_badge():
    setups = set()
    stamped = stamping.stamped_readme((ROOT / "README.md").read_text(), "ada/lab")
    lessons = stamped.partition("## Lessons\n")[2].partition("\n## ")[0]
    assert stamped.count("[![Open in Colab]") == lessons.count("[![Open in Colab]")
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        assert lessons.count(f"{path.name}) {badge('ada/lab', path.stem)}") == 1, path.name
        cells = nbformat.read(path, as_version=4).cells
        setups.add(next(cell.source for cell in cells if cell.cell_type == "code"))
    assert len(setups) == 1
