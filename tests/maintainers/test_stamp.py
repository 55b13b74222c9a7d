"""Stamping: what it writes, that it can be repeated and taken back, and what it refuses."""

import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from _tools import ROOT, tool

PIP = 'pip install "distlab @ git+https://github.com/OWNER/NAME"'
README = f"""\
# Lab

## Lessons

[Two](notebooks/two.ipynb): begin here. Then [one](notebooks/one.ipynb).

| lesson |
| --- |
| [One](notebooks/one.ipynb) | a thing | JAX | 5 min |

## Works with

| [One](notebooks/one.ipynb) | yes |

{PIP}

Über
"""


@pytest.fixture(scope="module")
def original(tmp_path_factory) -> Path:
    """A project with two notebooks that have outputs, and a table that names one of them."""
    folder = tmp_path_factory.mktemp("original")
    shutil.copytree(ROOT / "tools", folder / "tools")
    (folder / "README.md").write_text(README)
    (folder / "notebooks").mkdir()
    setup = tool("setup_cell").setup_cell()
    cells = [
        nbformat.v4.new_markdown_cell("# Título\n\nTwo sentences.\n\nAnd a third."),
        nbformat.v4.new_code_cell(setup, execution_count=1),
        nbformat.v4.new_code_cell(
            "print('é')",
            execution_count=2,
            outputs=[nbformat.v4.new_output("stream", name="stdout", text="é\n")],
        ),
    ]
    for name in ("one", "two"):
        path = folder / "notebooks" / f"{name}.ipynb"
        nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    subprocess.run([sys.executable, folder / "tools" / "notebooks.py", "tidy"], check=True)
    return folder


@pytest.fixture
def project(original, tmp_path) -> Path:
    return shutil.copytree(original, tmp_path, dirs_exist_ok=True)


def contents(project: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in [project / "README.md", *project.glob("n*/*")]}


def stamp(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, project / "tools" / "stamp.py", *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def badge(repository: str, name: str) -> str:
    image = "https://colab.research.google.com/assets/colab-badge.svg"
    link = f"https://colab.research.google.com/github/{repository}/blob/main/notebooks/{name}.ipynb"
    return f"[![Open in Colab]({image})]({link})"


def cloned(project: Path, address: str) -> None:
    subprocess.run(["git", "init", "-q", project], check=True)
    command = ["git", "-C", project, "remote", "add", "origin", address]
    subprocess.run(command, check=True)


def test_a_stamp_is_an_address_and_badges_and_nothing_else(project):
    before = contents(project)
    stamped = stamp(project, "ada/dist.lab")
    assert stamped.returncode == 0, stamped.stderr
    one, two = (badge("ada/dist.lab", name) for name in ("one", "two"))
    for path, old in before.items():
        text = path.read_text()
        if path.name == "README.md":
            assert text == (
                README.replace("two.ipynb):", f"two.ipynb) {two}:")
                .replace("one.ipynb) | a", f"one.ipynb) {one} | a")
                .replace("OWNER/NAME", "ada/dist.lab")
            )
        elif path.name == "one.ipynb":
            expected = nbformat.reads(old, as_version=4)
            expected.cells[0].source = f"# Título\n\n{one}\n\nTwo sentences.\n\nAnd a third."
            cell = tool("setup_cell").setup_cell("git+https://github.com/ada/dist.lab")
            expected.cells[1].source = cell
            assert text == nbformat.writes(expected) + "\n"
    checked = [sys.executable, project / "tools" / "notebooks.py", "check"]
    assert subprocess.run(checked).returncode == 0


def test_it_can_be_repeated_changed_and_taken_back(project):
    before = contents(project)
    stamp(project, "ada/lab")
    once = contents(project)
    assert "nothing" in stamp(project, "ada/lab").stdout
    assert contents(project) == once
    stamp(project, "grace/other")
    assert not any(b"ada/lab" in text for text in contents(project).values())
    assert all(b"grace/other" in text for text in contents(project).values())
    stamp(project, "ada/lab")
    assert contents(project) == once
    assert stamp(project, "--clear").returncode == 0
    assert contents(project) == before


def test_every_lesson_of_this_project_gets_one_badge_in_one_section():
    stamped = tool("stamp").stamped_readme((ROOT / "README.md").read_text(), "ada/lab")
    lessons = stamped.partition("## Lessons\n")[2].partition("\n## ")[0]
    assert stamped.count("[![Open in Colab]") == lessons.count("[![Open in Colab]")
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        assert lessons.count(f"{path.name}) {badge('ada/lab', path.stem)}") == 1, path.name


def test_a_readme_without_lessons_is_refused(project):
    readme = project / "README.md"
    readme.write_text(README.replace("## Lessons", "## Others"))
    before = contents(project)
    refused = stamp(project, "ada/lab")
    assert refused.stderr == (
        "README.md has no section Lessons, where the badges go. Nothing was changed.\n"
    )
    assert contents(project) == before


def test_a_bad_name_is_refused_in_one_line_and_nothing_is_written(project):
    before = contents(project)
    refused = stamp(project, "ada/lab.git")
    assert refused.returncode == 1
    assert refused.stderr == (
        "'ada/lab.git' is not of the form OWNER/NAME, as in ada/distlab. Nothing was changed.\n"
    )
    assert stamp(project, "ada/lab", "grace/lab").returncode == 2
    assert contents(project) == before


ADDRESSES = (
    "https://github.com/ada/dist.lab",
    "https://github.com/ada/dist.lab.git",
    "https://github.com/ada/dist.lab/",
    "https://ada:secret@github.com/ada/dist.lab.git",
    "git@github.com:ada/dist.lab.git",
    "git@github.com:ada/dist.lab",
    "github.com:ada/dist.lab.git",
    "ssh://git@github.com/ada/dist.lab.git",
    "ssh://git@ssh.github.com:443/ada/dist.lab.git",
)
# Each with what a refusal shows of it.
ELSEWHERE = {
    "https://ada:secret@gitlab.com/ada/lab.git": "https://gitlab.com/ada/lab.git",
    "git@example.org:ada/lab.git": "git@example.org:ada/lab.git",
    "https://github.com.example.org/ada/lab": "https://github.com.example.org/ada/lab",
    "https://github.com/ada/lab/tree/main": "https://github.com/ada/lab/tree/main",
    "/srv/lab.git": "/srv/lab.git",
}


def test_addresses_of_git_name_a_repository(subtests):
    module = tool("stamp")
    for address in ADDRESSES:
        with subtests.test(address):
            assert module.repository_at(address) == module.named(address) == "ada/dist.lab"
    for address, shown in ELSEWHERE.items():
        with subtests.test(address), pytest.raises(module.StampError) as refused:
            module.repository_at(address)
        assert str(refused.value).startswith(f"{shown} is not the address of a repository on")


def test_without_a_name_it_is_where_the_clone_comes_from(project):
    cloned(project, ADDRESSES[3])
    stamped = stamp(project)
    assert stamped.returncode == 0, stamped.stderr
    assert "secret" not in stamped.stdout + stamped.stderr
    cell = nbformat.read(project / "notebooks" / "two.ipynb", as_version=4).cells[1].source
    assert cell == tool("setup_cell").setup_cell("git+https://github.com/ada/dist.lab")


def test_an_address_may_be_given_for_the_name(project):
    stamp(project, "ada/dist.lab")
    named = contents(project)
    stamp(project, "--clear")
    for address in (ADDRESSES[1], ADDRESSES[4]):
        stamped = stamp(project, address)
        assert stamped.returncode == 0, stamped.stderr
        assert contents(project) == named


def test_another_host_is_refused_without_showing_a_password(project):
    address, shown = next(iter(ELSEWHERE.items()))
    cloned(project, address)
    before = contents(project)
    for refused in (stamp(project), stamp(project, address)):
        assert refused.returncode == 1
        assert refused.stderr.startswith(f"{shown} is not the address of a repository on GitHub")
        assert "make stamp REPO=OWNER/NAME" in refused.stderr
        assert "secret" not in refused.stderr
    assert contents(project) == before


def test_without_a_remote_it_asks_for_the_name(project):
    subprocess.run(["git", "init", "-q", project], check=True)
    refused = stamp(project)
    assert refused.returncode == 1
    assert refused.stderr == (
        "git names no remote origin here (error: No such remote 'origin'):"
        " name the place, make stamp REPO=OWNER/NAME. Nothing was changed.\n"
    )


def test_what_is_no_repository(subtests):
    module = tool("stamp")
    for wrong in (
        "lab", "ada/", "/lab", "a da/lab", "ada/lab/tree", "ada/lab.git", "ada/..", "ada/l)b",
        'ada/l"b', "-ada/lab", "ada/lab\n",
    ):  # fmt: skip
        with subtests.test(wrong), pytest.raises(module.StampError, match="OWNER/NAME"):
            module.stamp(wrong)


def test_a_notebook_without_the_cell_stops_it_before_anything_is_written(project):
    two = project / "notebooks" / "two.ipynb"
    two.write_text(two.read_text().replace("@title", "@Title"))
    before = contents(project)
    refused = stamp(project, "ada/lab")
    assert refused.stderr == (
        "two.ipynb does not begin with the set-up cell. Nothing was changed.\n"
    )
    assert contents(project) == before


def test_all_notebooks_have_the_same_stamp():
    sources = set()
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        cells = nbformat.read(path, as_version=4).cells
        setup = next(cell.source for cell in cells if cell.cell_type == "code")
        sources.add(setup)
    assert len(sources) == 1
