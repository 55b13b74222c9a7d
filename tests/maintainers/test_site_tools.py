"""The tools that make the site, without a browser: links, words, buttons, and their examples."""

import json
import shutil
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest
import yaml
from _tools import ROOT, tool


def test_a_stamped_lesson_has_a_button_for_colab_and_one_for_its_source():
    words = tool("site_pages").WORDS["en"]
    page = "notebooks/03_model_parallel_keras"
    facts = {"words": words, "origins": {page: f"{page}.ipynb"}, "languages": {}, "english": []}

    def links(repository: str) -> list[str]:
        config = SimpleNamespace(site_facts=facts | {"repository": repository}, language="en")
        made = tool("site_theme").buttons(SimpleNamespace(config=config), page)
        return [button["url"] for button in made]

    download = "../downloads/03_model_parallel_keras.ipynb"
    assert links("") == [download]
    colab = "https://colab.research.google.com/github/ada/lab/blob/main"
    source = "https://github.com/ada/lab/blob/main"
    assert links("ada/lab") == [f"{colab}/{page}.ipynb", download, f"{source}/{page}.ipynb"]


def test_each_language_has_words_of_its_own(subtests):
    words = tool("site_pages").WORDS
    missing_in_english = {"untranslated", "found"}  # Sphinx' own word, and nothing to say
    assert {name for name, text in words["en"].items() if not text} == missing_in_english
    theme = tool("site_assemble").THEME_WORDS  # by the English ones
    assert theme.keys() == set(words) - {"en"}
    for language, found in theme.items():
        with subtests.test(language):
            assert words[language].keys() == words["en"].keys()
            assert found.keys() == theme["ko"].keys()
            pairs = [
                *found.items(),
                *((words["en"][name], words[language][name]) for name in words["en"]),
            ]
            assert [text for english, text in pairs if text in {"", english}] == []


def test_the_workflow_is_yaml_and_says_what_was_checked():
    text = (ROOT / ".github" / "workflows" / "site.yml").read_text()
    assert "Only this file's syntax was checked" in text
    assert set(yaml.safe_load(text)["jobs"]) == {"make", "publish"}


def test_a_link_that_leads_nowhere_is_named(tmp_path):
    links = tool("site_links")
    (tmp_path / "a.html").write_text('<a href="b.html#y">b</a> <a href="#x">x</a> <p id="x">')
    (tmp_path / "b.html").write_text('<p id="y"> <img src="c.png"> <a href="a.html#z">z</a>')
    assert links.dead_links(tmp_path) == [
        "b.html: there is no c.png",
        "b.html: nothing is at a.html#z",
    ]


class Elsewhere(BaseHTTPRequestHandler):
    """Another server: one page answers, one refuses HEAD, one is gone."""

    def do_GET(self):
        self.send_response(404 if self.path == "/gone" else 200)
        self.end_headers()

    def do_HEAD(self):
        if self.path == "/gets-only":
            self.send_error(405)
        else:
            self.do_GET()

    def log_message(self, *words):
        pass


def test_addresses_elsewhere_are_asked_and_those_that_do_not_answer_are_named(tmp_path):
    links = tool("site_links")
    with socket.socket() as held, ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere) as there:
        held.bind(("127.0.0.1", 0))  # nobody listens: every connection is refused
        thread = threading.Thread(target=there.serve_forever)
        thread.start()
        try:
            site = f"http://127.0.0.1:{there.server_port}"
            nobody = f"http://127.0.0.1:{held.getsockname()[1]}"
            named = [f"{site}/here#part", f"{site}/gets-only", f"{site}/gone", f"{nobody}/a"]
            html = "".join(f'<a href="{link}">a</a>' for link in [*named, "b.html"])
            (tmp_path / "a.html").write_text(html)
            dead = list(links.dead_outside(tmp_path))
        finally:
            there.shutdown()
            thread.join()
    assert dead[0] == f"a.html: {site}/gone: 404 Not Found"
    assert dead[1].startswith(f"a.html: {nobody}/a: ")
    assert "refused" in dead[1]
    assert len(dead) == 2


@pytest.fixture(scope="module")
def source():
    return tool("site_source").Source("en")


def test_a_link_to_no_heading_of_another_page_is_named(source):
    assert source._target("docs/faults.md", "glossary.md#mesh") == "glossary.md#mesh"
    with pytest.raises(ValueError, match=r"docs/faults\.md: .*glossary\.md has no heading #Mush"):
        source._target("docs/faults.md", "glossary.md#Mush")
    with pytest.raises(ValueError, match="there is no nothing"):
        source._target("docs/faults.md", "nothing.md")


PAGES = """
import json, sys
sys.path[:0] = ["tools", "."]
from site_source import Source, languages
from translations import outdated
print(json.dumps([{name: Source(name).pages for name in languages()}, outdated()]))
"""


def test_a_stamped_site_says_in_every_language_how_to_get_the_project(tmp_path):
    skip = shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints")
    for name in ("tools", "docs", "notebooks", "translations", "distlab"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=skip)
    for path in ROOT.glob("README*.md"):
        shutil.copy(path, tmp_path)

    def run(*words: str) -> str:
        command = [sys.executable, *words]
        return subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, check=True
        ).stdout

    run("tools/translations.py")
    written = [
        path for name in ("notebooks/**/*.ipynb", "README*.md") for path in tmp_path.glob(name)
    ]
    before = [path.read_bytes() for path in written]
    run("tools/stamp.py", "ada/lab")
    pages, outdated = json.loads(run("-c", PAGES))
    assert outdated == []
    assert list(pages) == tool("site_source").languages()
    get = "```sh\ngit clone https://github.com/ada/lab\ncd lab\nmake lab "
    for language, named in pages.items():
        assert get in named["start.md"], language
        button = tool("site_pages").WORDS[language]["repository"]
        assert f'href="https://github.com/ada/lab">{button}</a>' in named["index.md"], language
    for path in written:
        text = path.read_text()
        name = path.relative_to(tmp_path).as_posix()
        assert path.suffix == ".md" or f"github/ada/lab/blob/main/{name})" in text
        assert "OWNER/NAME\\nThen" not in text
    run("tools/stamp.py", "--clear")
    assert [path.read_bytes() for path in written] == before


@pytest.mark.skipif(bool(tool("site_source").repository()), reason="this project is stamped")
def test_a_site_that_is_not_stamped_names_no_place_but_says_where_its_commands_run(source):
    start = source.pages["start.md"]
    assert "Run the commands in a clone of the project's repository." in start
    assert "git clone" not in start
    assert "github.com" not in source.pages["index.md"]
