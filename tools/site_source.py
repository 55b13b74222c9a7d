"""What Sphinx reads: the notebooks, README.md and the pages in docs, as the site needs them."""

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import nbformat
import site_api
import site_links
import site_modules
import site_pages
import site_pictures
from cells import PREDICT, answer_to, is_folded
from setup_cell import address_in

ROOT = Path(__file__).resolve().parent.parent
FIRST = ("field", "works_with", "your_code", "docs/glossary", "docs/engines", "docs/faults")
"""The pages for looking things up; what else is in docs comes after them."""
PROJECT = ("docs/contributing", "docs/writing", "docs/house")
BADGE = re.compile(r" ?\[!\[Open in Colab\]\([^)\s]+\)\]\([^)\s]+\)(?:\n\n)?")
"""What tools/stamp.py adds below titles: a picture from another server. Pages have a button."""


def repository() -> str:
    """Returns the OWNER/NAME that the notebooks are stamped with; nothing if they are not."""
    start = nbformat.read(ROOT / "notebooks" / "00_start_here.ipynb", as_version=4)
    setup = next(cell for cell in start.cells if cell.cell_type == "code")
    address = address_in(setup.source) or ""
    return address.removeprefix("git+https://github.com/")


def languages() -> list[str]:
    """Returns the languages that something is written in, English first."""
    found = [name for name in site_pages.WORDS if (ROOT / "notebooks" / name).is_dir()]
    return ["en", *found]


def markdown(notebook: nbformat.NotebookNode) -> str:
    """Returns the Markdown cells of a notebook as one page."""
    return "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")


def normal(path: PurePosixPath | str) -> str:
    """Returns a path without `..`, relative to the project's folder."""
    return os.path.normpath(path).replace(os.sep, "/")


def answers(cells: list[nbformat.NotebookNode]) -> set[str]:
    """Returns the ids of the cells whose outputs answer what the reader is asked to predict."""
    asking = [
        at
        for at, cell in enumerate(cells)
        if cell.cell_type == "markdown" and PREDICT.search(cell.source)
    ]
    return {cells[found].id for at in asking if (found := answer_to(cells, at)) is not None}


class Source:
    """The pages of one language.

    Attributes:
        language: Its code.
        pages: The text of each page that is Markdown, by its path in the source.
        notebooks: Each notebook, by its path in the source.
        origins: Where in the project a page comes from: links in it are relative to that.
        english: The pages that this language has in English only.
        descriptions: What search engines show of a page, where it is not its first paragraph.
        files: Files that pages link to, relative to the project's folder.
        answers: The cells of each notebook whose outputs answer a prediction, by their ids.
        versions: What the lessons were run with.
        titles: The headings of each page, by its path in the source.
    """

    def __init__(self, language: str) -> None:
        self.language = language
        self.pages: dict[str, str] = {}
        self.notebooks: dict[str, nbformat.NotebookNode] = {}
        self.origins: dict[str, str] = {}
        self.english: list[str] = []
        self.files: set[str] = set()
        self.descriptions: dict[str, str] = {}
        self.answers: dict[str, set[str]] = {}
        self.versions = site_pages.versions((ROOT / "README.md").read_text(encoding="utf-8"))
        self.repository = repository()
        self._collect()
        self.titles = {name: site_links.headings(text) for name, text in self.pages.items()}
        for name, notebook in self.notebooks.items():
            self.titles[name] = site_links.headings(markdown(notebook))
        self._link()

    def _translated(self, name: str) -> str:
        """Returns the path of a file in this language, or in English."""
        path = PurePosixPath(name)
        if self.language != "en":
            folder = f"{path.parent}/{self.language}/{path.name}"
            ending = f"{path.with_suffix('')}.{self.language}{path.suffix}"
            for there in map(normal, (folder, ending)):
                if (ROOT / there).exists():
                    return there
            self.english.append(str(path.with_suffix("")))
        return name

    def _collect(self) -> None:
        english = (ROOT / "README.md").read_text(encoding="utf-8")
        origin = self._translated("README.md")
        readme = BADGE.sub("", (ROOT / origin).read_text(encoding="utf-8"))
        for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
            name = f"notebooks/{path.name}"
            self.origins[name] = self._translated(name)
            self.notebooks[name] = nbformat.read(ROOT / self.origins[name], as_version=4)
            # A translation has the cells of the English notebook, with their ids.
            self.answers[name] = answers(nbformat.read(path, as_version=4).cells)
        start = markdown(self.notebooks["notebooks/00_start_here.ipynb"])
        found = site_pages.lessons(readme, start)
        self.descriptions = {f"notebooks/{x.name}": f"{x.title}: {plain(x.seen)}" for x in found}
        words = site_pages.WORDS[self.language]
        api = site_api.pages()
        docs = [f"docs/{path.stem}" for path in sorted((ROOT / "docs").glob("*.md"))]
        others = [name for name in docs if name not in (*FIRST, *PROJECT)]
        shelves = {
            words["reference"]: [*FIRST, *others],
            "API": [f"api/{name}" for name in api],
            words["project"]: list(PROJECT),
        }
        made = site_pages.readme_pages(BADGE.sub("", english), readme)
        made["index"] = site_pages.front(readme, found, self.language, shelves, self.repository)
        start = site_pages.with_clone(made["start"], self.repository)
        made["start"] = re.sub("^# .*", f"# {words['install']}", start, count=1)  # as in the menu
        run = site_pictures.real_run(words)
        made["index"] = made["index"].replace("<!-- real run -->", run)
        if origin == "README.md":
            self.english += [name for name in made if self.language != "en"]
        else:
            self.english.remove("README") if "README" in self.english else None
        made["404"] = site_pages.missing(self.language)
        for name, text in made.items():
            self.pages[f"{name}.md"] = text
            self.origins[f"{name}.md"] = origin
        for name in docs:
            origin = self._translated(f"{name}.md")
            text = (ROOT / origin).read_text(encoding="utf-8")
            if name == "docs/glossary":  # no heading of the second level is there
                text = site_pages.raised(text)
            self.pages[f"{name}.md"] = site_modules.drawn(text)
            self.origins[f"{name}.md"] = origin
        for name, text in api.items():
            self.pages[f"api/{name}.md"] = text
            self.origins[f"api/{name}.md"] = f"api/{name}.md"
            self.english += [f"api/{name}"] if self.language != "en" else []

    def _link(self) -> None:
        for name, text in self.pages.items():
            self.pages[name] = self._relinked(name, text)
        for name, notebook in self.notebooks.items():
            for cell in notebook.cells:
                if cell.cell_type == "markdown":
                    cell.source = site_pages.without_languages(BADGE.sub("", cell.source))
                    cell.source = self._relinked(name, cell.source)
                elif is_folded(cell):
                    cell.metadata["tags"] = [*cell.metadata.get("tags", []), "hide-input"]
            site_pictures.describe(notebook)
            for cell in notebook.cells:
                if cell.id in self.answers[name]:
                    self._fold(cell)

    def _fold(self, cell: nbformat.NotebookNode) -> None:
        """Fold the output of a cell: the reader predicts it before unfolding it."""
        words = site_pages.WORDS[self.language]
        cell.metadata["tags"] = [*cell.metadata.get("tags", []), "hide-output"]
        prompts = {f"code_prompt_{what}": words[f"{what} answer"] for what in ("show", "hide")}
        cell.metadata["mystnb"] = {**cell.metadata.get("mystnb", {}), **prompts}

    def _relinked(self, page: str, text: str) -> str:
        return site_links.relinked(text, lambda link: self._target(page, link))

    def _target(self, page: str, link: str) -> str:
        """Returns where a link of a page leads in the site.

        Raises:
            ValueError: If it leads nowhere.
        """
        if site_links.OUTSIDE.match(link):
            return link
        path, _, wanted = link.partition("#")
        origin = PurePosixPath(self.origins[page])
        there = normal(origin.parent / path) if path else str(origin)
        there = self._english_path(there)
        if there == "README.md":
            return self._relative(page, *self._in_readme(page, wanted))
        if there in self.titles:
            return self._relative(page, there, self._anchor(page, there, wanted))
        if there == normal(self.origins[page]):
            return self._relative(page, page, self._anchor(page, page, wanted))
        if not (ROOT / there).exists():
            raise ValueError(f"{origin}: there is no {link}")
        if self.repository:
            kind = "tree" if (ROOT / there).is_dir() else "blob"
            return f"https://github.com/{self.repository}/{kind}/main/{there}"
        self.files.add(there)
        return self._relative(page, there, "")

    def _english_path(self, there: str) -> str:
        path = there.replace(f"/{self.language}/", "/")
        return path.replace(f".{self.language}.", ".")

    def _in_readme(self, page: str, wanted: str) -> tuple[str, str]:
        if not wanted:
            return "start.md", ""
        for name in site_pages.SECTIONS:
            if found := site_links.same_anchor(wanted, self.titles[f"{name}.md"]):
                return f"{name}.md", found
        raise ValueError(f"{self.origins[page]}: README.md has no #{wanted}")

    def _anchor(self, page: str, there: str, wanted: str) -> str:
        if not wanted:
            return ""
        found = site_links.same_anchor(wanted, self.titles[there])
        if found is None:
            raise ValueError(f"{self.origins[page]}: {there} has no heading #{wanted}")
        return found

    @staticmethod
    def _relative(page: str, there: str, wanted: str) -> str:
        path = os.path.relpath(there, PurePosixPath(page).parent).replace(os.sep, "/")
        return f"{path}#{wanted}" if wanted else path

    def _contents(self) -> Iterator[tuple[str, bytes]]:
        for name, text in self.pages.items():
            yield name, text.encode()
        for name, notebook in self.notebooks.items():
            yield name, nbformat.writes(notebook).encode()
        for name in self.files | {"docs/picture.svg"}:
            yield name, (ROOT / name).read_bytes()
        yield site_pictures.REAL_RUN, site_pictures.real_picture()

    def write(self, folder: Path) -> None:
        """Write the pages; a file that would stay as it is is not touched, others go."""
        wanted = dict(self._contents())
        for path in [path for path in folder.rglob("*") if path.is_file()]:
            if path.relative_to(folder).as_posix() not in wanted:
                path.unlink()
        for name, content in wanted.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists() or path.read_bytes() != content:
                path.write_bytes(content)


def originals(site: Path) -> None:
    """Copy the notebooks of each language as they are, for readers who download one."""
    for language in languages():
        below = "" if language == "en" else language
        folder = site / below / "downloads"
        folder.mkdir(parents=True)
        for path in sorted((ROOT / "notebooks" / below).glob("*.ipynb")):
            shutil.copyfile(path, folder / path.name)


def plain(text: str) -> str:
    """Returns a line of Markdown without marks.

    Example:
        >>> plain("one `fit`, [*more*](a.md)")
        'one fit, more'
    """
    return re.sub(r"[`*]", "", re.sub(r"\[([^]]+)\]\([^)]*\)", r"\1", text))
