"""The badges that open a notebook in Colab: how one looks, where README.md has them."""

import re

COLAB = "https://colab.research.google.com"
BADGE = re.compile(
    rf"\[!\[Open in Colab\]\({re.escape(COLAB)}/assets/colab-badge\.svg\)\]"
    rf"\({re.escape(COLAB)}/github/([^/)\s]+/[^/)\s]+)/[^)\s]+\)"
)
"""A badge; its group is the repository, OWNER/NAME."""
# A row of the table, or a paragraph, that begins with a lesson, translated or not.
LESSON = re.compile(r"^(?:\| )?\[[^]]*\]\(notebooks/((?:[a-z]{2}/)?[\w.-]+\.ipynb)\)", re.MULTILINE)


def badge(repository: str, notebook: str) -> str:
    """Returns the Markdown of the badge that opens a notebook in Colab.

    Args:
        repository: OWNER/NAME on GitHub.
        notebook: The notebook's path below `notebooks/`.
    """
    link = f"{COLAB}/github/{repository}/blob/main/notebooks/{notebook}"
    return f"[![Open in Colab]({COLAB}/assets/colab-badge.svg)]({link})"


def repository_in(text: str) -> str:
    """Returns the OWNER/NAME that a text's badges open, an empty string if it has none."""
    found = BADGE.search(text)
    return found[1] if found else ""


def with_badge(title_cell: str, repository: str, notebook: str) -> str:
    """Returns a notebook's first cell with the badge under the title, its only badge.

    Args:
        title_cell: The source of the cell.
        repository: OWNER/NAME on GitHub; an empty string takes the badge away.
        notebook: The notebook's path below `notebooks/`.
    """
    title, *rest = title_cell.split("\n\n")
    rest = [paragraph for paragraph in rest if not BADGE.fullmatch(paragraph)]
    marks = [badge(repository, notebook)] if repository else []
    return "\n\n".join([title, *marks, *rest])


def without_badges(text: str) -> str:
    """Returns README.md's text without the badges behind its lessons."""
    return re.sub(f" {BADGE.pattern}", "", text)


def with_badges(text: str, repository: str) -> str:
    """Returns the text with a badge behind each lesson that begins a paragraph or a row."""
    return LESSON.sub(lambda found: f"{found[0]} {badge(repository, found[1])}", text)
