"""Holds the lessons to the rules that docs/writing.md gives, as far as a machine can.

What any notebook must be, such as run and tidy, tools/notebooks.py checks.
"""

import argparse
import ast
import re
import sys
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path

import exercises
import nbformat
from cells import HEADING, PREDICT, answer_to, blocks, is_folded, prose, python, remarks, shown
from nbformat import NotebookNode
from plotting import Plotting, trains
from worst_words import ALLOWED, joined, worst_words

FOLDER = Path(__file__).resolve().parent.parent / "notebooks"
START = "00_start_here.ipynb"
LONGEST = 85
"""Cells of a lesson, at most."""
BEGINNING = 10
"""So many cells may pass until something is trained, started or drawn."""
PLOTTING = 5
"""Lines that call Matplotlib in a cell that is not folded, at most."""
SECTIONS = ("When it goes wrong", "On real hardware", "Exercises", "What you have seen")

HINT = re.compile(r"<details>.*?</details>", re.DOTALL)
NUMBER = re.compile(
    r"(?<![\w.])(?<![A-Za-z]:)(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:e[+-]?\d+)?(?![\w]|\.\d)"
)
REFERENCE = re.compile(
    r"\b(?:cell|device|exercise|lesson|node|process|rank|replica|section|server|stage|worker|version"
    r"|JAX|Keras|Python|PyTorch|TensorFlow)(?:e?s)? \d+(?:\.\d+)*(?: (?:and|or) \d+)?",
    re.IGNORECASE,
)
"""A number that only names something: it gives no answer away."""

Problem = tuple[int, str]
"""The number of a cell, counted from 0 as in the file, and what is wrong with it."""


def numbers(text: str) -> dict[Decimal, str]:
    """Returns the numbers that stand alone in a text, as written, by value.

    Example:
        >>> sorted(numbers("cpu:7 holds 1,536 of [8, 2.50], d1").values())
        ['1,536', '2.50', '8']
    """
    return {Decimal(found.replace(",", "")): found for found in NUMBER.findall(text)}


def predictions(cells: Sequence[NotebookNode]) -> Iterator[Problem]:
    """Yields what is wrong with the paragraphs that ask the reader to predict."""
    for at, cell in enumerate(cells):
        if cell.cell_type != "markdown" or not PREDICT.search(cell.source):
            continue
        paragraphs = re.split(r"\n\s*\n", HINT.sub("", cell.source).strip())
        for number, paragraph in enumerate(paragraphs):
            if not (begin := PREDICT.search(paragraph)):
                continue
            if begin.start():
                yield at, "**Predict** stands inside a paragraph: it begins one"
            paragraph = paragraph[begin.start() :]
            if not paragraph.rstrip().endswith("?"):
                yield at, f"the prediction is no question: it ends with {paragraph.strip()[-25:]!r}"
            elif prose(paragraph).count("?") > 1:
                yield at, "the prediction asks more than one question: ask one"
            if number < len(paragraphs) - 1:
                yield at, "text follows the prediction: only a folded hint (<details>) may"
            yield from _answered(cells, at, paragraph)


def _answered(cells: Sequence[NotebookNode], at: int, paragraph: str) -> Iterator[Problem]:
    """Yields what is wrong with the code that answers a prediction."""
    answer = answer_to(cells, at)
    if answer is None:
        yield at, "no code follows the prediction: the next cell shows the answer"
        return
    if not cells[answer].outputs:
        yield at, f"cell {answer} should show the answer to the prediction, and shows nothing"
    there = numbers(shown(cells[answer]))
    for value, written in numbers(REFERENCE.sub("", paragraph)).items():
        if value in there:
            yield (
                at,
                f"the prediction names {written}, and so does the output of cell {answer}: ask"
                " without the answer, and give in an earlier paragraph what the reader needs",
            )


def shape(cells: Sequence[NotebookNode], is_start: bool) -> Iterator[Problem]:
    """Yields what is wrong with a lesson's parts and their order."""
    first = cells[0].source if cells[0].cell_type == "markdown" else ""
    if not re.match(r"# \w", first):
        yield 0, "there is no title: the first cell begins with # and the title"
    if "At the end you will have" not in first:
        yield (
            0,
            "the first cell does not say what the reader will have seen: At the end you will have",
        )
    if not re.search(r"\bAbout \d+ minutes? to read\b", first):
        yield 0, "the first cell does not say how long it takes: About 30 minutes to read"
    if len(cells) > LONGEST:
        yield LONGEST, f"{len(cells)} cells: at most {LONGEST}; two stories are two lessons"
    text = "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    titles = HEADING.findall(text)
    for name in SECTIONS[-1:] if is_start else SECTIONS:
        if name not in titles:
            yield len(cells) - 1, f"there is no section {name!r}"
    beginning = [
        cell
        for cell in cells[:BEGINNING]
        if cell.cell_type == "code" and not cell.source.startswith("%%")  # written, not run
    ]
    if not any(map(is_drawn, beginning)) and not trains(
        ast.parse(python(cell.source)) for cell in beginning
    ):
        yield (
            min(BEGINNING, len(cells) - 1),
            f"nothing is trained, started or drawn in the first {BEGINNING} cells: begin with"
            " something that moves",
        )


def is_drawn(cell: NotebookNode) -> bool:
    """Tells whether a code cell stores a picture, or a drawing in HTML."""
    kinds = [kind for output in cell.outputs for kind in output.get("data", {})]
    return any(kind.startswith("image/") or kind == "text/html" for kind in kinds)


def plots(cells: Sequence[NotebookNode]) -> Iterator[Problem]:
    """Yields the cells in which a reader has to scroll past drawing."""
    plotting = Plotting()
    for at, cell in enumerate(cells):
        if cell.cell_type == "code":
            lines = plotting.lines(ast.parse(python(cell.source)))
            if len(lines) > PLOTTING and not is_folded(cell):
                yield (
                    at,
                    f"{len(lines)} lines call Matplotlib: at most {PLOTTING}; fold the cell"
                    " (jupyter.source_hidden) or move the drawing to distlab.plots",
                )


def words(cells: Sequence[NotebookNode], allowed: Sequence[str] = ()) -> Iterator[Problem]:
    """Yields the worst words of what is written, in prose and in code."""
    everything = ""
    for at, cell in enumerate(cells):
        is_text = cell.cell_type == "markdown"
        code = blocks(cell.source) if is_text else [python(cell.source)]
        texts = [prose(cell.source)] if is_text else []
        texts += [text for part in code for text in remarks(part)]
        for text in texts:
            everything += joined(text).lower() + "\n"
            yield from ((at, message) for message in worst_words(text, allowed))
    for phrase in allowed:
        if joined(phrase).lower() not in everything:
            yield 0, f"tools/worst_words.py allows {phrase!r}, which is not there"


def problems(path: Path) -> list[str]:
    """Returns what is wrong with a lesson, one line each, in the order of the cells."""
    cells = nbformat.read(path, as_version=4).cells
    found: list[Problem] = []
    for at, cell in enumerate(cells):
        code = [python(cell.source)] if cell.cell_type == "code" else blocks(cell.source)
        for part in code:
            try:
                ast.parse(part)
            except SyntaxError as error:
                found.append((at, f"its code cannot be parsed: {error.msg}"))
    if not found:
        found += predictions(cells)
        found += shape(cells, path.name == START)
        found += plots(cells)
        found += words(cells, ALLOWED.get(path.name, ()))
        if path.name != START:
            found += exercises.problems(cells)
    return [f"{path.name}: cell {at}: {problem}" for at, problem in sorted(found)]


def main() -> int:
    """Checks the lessons named on the command line, all without names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("notebooks", nargs="*", type=Path)
    arguments = parser.parse_args()
    paths = arguments.notebooks or sorted(FOLDER.glob("*.ipynb"))
    found = {path: problems(path) for path in paths}
    for problem in [line for lines in found.values() for line in lines]:
        print(problem)
    wrong = sum(map(bool, found.values()))
    print(f"{len(paths)} lessons, {wrong} to put right: docs/writing.md")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
