"""The site without a browser: broken links, its API pages, what publishes it, and the stamp."""

import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
import yaml
from _browser import copy_checkout, git
from _tools import ROOT, tool

import distlab

BROKEN = {
    "README.md": "# Lab\n\n[a](docs/nothing.md) [b](docs/glossary.md#mush) [c](#nowhere)\n",
    "docs/glossary.md": "# Glossary\n\n## mesh\n\nDevices. [mesh](#Mesh), [Lab](../README.md)\n",
}


@pytest.fixture
def project(tmp_path) -> Path:
    """Two pages, one of which has links that lead nowhere, and one lesson."""
    skip = shutil.ignore_patterns("__pycache__", "api")
    for name in ("tools", "docs/site"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=skip)
    for name, text in BROKEN.items():
        (tmp_path / name).write_text(text)
    lesson = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("# Start")])
    (tmp_path / "notebooks").mkdir()
    nbformat.write(lesson, tmp_path / "notebooks" / "00_start_here.ipynb")
    return tmp_path


def test_a_link_that_leads_nowhere_is_named_and_stops_the_build(project):
    command = [sys.executable, "tools/site_build.py"]
    made = subprocess.run(command, cwd=project, capture_output=True, text=True)
    assert made.returncode == 1
    missing = [line for line in made.stderr.splitlines() if "[myst.xref_missing]" in line]
    assert len(missing) == 3, made.stderr
    for target in ("docs/nothing.md", "mush", "nowhere"):
        assert [line for line in missing if "README.md" in line and target in line], missing
    assert "the site is not complete" in made.stderr


def test_every_public_module_has_a_page():
    modules = {f"distlab.{name}" for name in dir(distlab) if name not in distlab.__all__}
    modules -= {"distlab.__version__"}
    pages = {path.stem: path.read_text() for path in ROOT.glob("docs/site/api/*.md")}
    assert pages.keys() == {"distlab", *modules}
    assert [name for name, text in pages.items() if f"automodule:: {name}\n" not in text] == []


def test_the_languages_are_those_that_something_is_translated_to():
    pages = tool("site_pages")
    there = {path.stem.partition(".")[2] for path in ROOT.glob("README.*.md")}
    assert pages.LANGUAGES.keys() == {"en", *there} == pages.WORDS.keys()


def test_the_workflow_is_yaml_and_says_what_was_checked():
    text = (ROOT / ".github" / "workflows" / "site.yml").read_text()
    assert "Only this file's syntax was checked" in text
    assert set(yaml.safe_load(text)["jobs"]) == {"make", "publish"}


def test_a_stamp_leaves_translations_current_and_can_be_taken_back(tmp_path):
    copy = copy_checkout(tmp_path / "lab")
    for command in ("stamp.py ada/lab", "translations.py check", "stamp.py --clear"):
        program, *words = command.split()
        subprocess.run([sys.executable, f"tools/{program}", *words], cwd=copy, check=True)
    assert git(copy, "status", "--porcelain") == ""
