"""Holds the lessons to the rules that docs/writing.md gives, as far as a machine can.

What any notebook must be, such as run and tidy, tools/notebooks.py checks.
"""

import argparse
import ast
import itertools
import json
import re
import sys
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import exercises
import nbformat
import reading
from cells import HEADING, PREDICT, answer_to, blocks, is_folded, python, remarks, shown
from markdown_text import prose
from nbformat import NotebookNode
from worst_words import worst_words

FOLDER = Path(__file__).resolve().parent.parent / "notebooks"
START = "00_start_here.ipynb"
SECONDS = FOLDER.parent / "tests" / "seconds.json"
"""What each lesson takes on two cores, alone: `pytest -n0 --store-seconds`."""
BEGINNING = 10
"""So many cells may pass until something is trained, started or drawn."""
PLOTTING = 5
"""Lines that call Matplotlib in a cell that is not folded, at most."""
DRAWS = re.compile(
    r"^(?:plt|ax|axes|axis|fig|figure)[.[]"
    r"|\.(?:annotate|axhline|axvline|barh?|imshow|legend|plot|set_title|set_[xy]\w+|text)$"
)
"""Calls of Matplotlib, by the usual names of its objects or by its methods."""
TRAINS = re.compile(
    r"^distlab\.(?:launch|run)$|\b(?:Popen|apply_gradients|backward|fit|minimize|start_processes"
    r"|train_on_batch|value_and_grad)$"
)
"""Calls that train, or start processes."""
SECTIONS = ("When it goes wrong", "On real hardware", "Exercises", "What you have seen")

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
    """Yields what is wrong with the paragraphs that ask to predict, and with their answers."""
    for at, cell in enumerate(cells):
        text = reading.HINT.sub("", cell.source).strip()
        if cell.cell_type != "markdown" or not (begin := PREDICT.search(text)):
            continue
        if not re.search(r"(^|\n\s*\n)$", text[: begin.start()]):
            yield at, "**Predict** stands inside a paragraph: it begins one"
        paragraph, *more = re.split(r"\n\s*\n", text[begin.start() :])
        if not paragraph.endswith("?"):
            yield at, f"the prediction is no question: it ends with {paragraph[-25:]!r}"
        elif prose(paragraph).count("?") > 1:
            yield at, "the prediction asks more than one question: ask one"
        if more:
            yield at, "text follows the prediction: only a folded hint (<details>) may"
        answer = answer_to(cells, at)
        if answer is None:
            yield at, "no code follows the prediction: the next cell shows the answer"
        elif not cells[answer].outputs:
            yield at, f"cell {answer} should show the answer to the prediction, and shows nothing"
        else:
            yield from _answered(cells, at, answer, paragraph)


def _answered(
    cells: Sequence[NotebookNode], at: int, answer: int, question: str
) -> Iterator[Problem]:
    """Yields what gives the answer to a prediction away before it runs."""
    said = shown(cells[answer])
    there = numbers(said)
    for value, written in numbers(REFERENCE.sub("", question)).items():
        if value in there:
            yield (
                at,
                f"the prediction names {written}, and so does the output of cell {answer}: ask"
                " without the answer, and give in an earlier paragraph what the reader needs",
            )
    last = said.rstrip("\n").rpartition("\n")[2].strip()
    for place in range(at + 1, answer + 1):
        code = python(cells[place].source)
        if claims(code):
            yield place, "asserts below a prediction: move them to a folded cell after it"
        for remark in remarks(code):
            if remark and remark.strip() == last:
                yield place, f"the code says the answer before it runs: {remark!r}"
    below = itertools.takewhile(lambda cell: cell.cell_type == "code", cells[answer:])
    for number, cell in enumerate(below, answer):
        if cell.outputs and not cell.metadata.get("jupyter", {}).get("outputs_hidden"):
            yield number, "the answer to a prediction: fold its output (jupyter.outputs_hidden)"
    for after in cells[answer + 1 : answer + 2]:
        is_open = after.cell_type == "code" and not is_folded(after)
        if is_open and claims(python(after.source)):
            yield answer + 1, "asserts about a prediction: fold the cell"


def claims(code: str) -> bool:
    """Tells whether code asserts something, or fails where it should not come."""
    return any(
        isinstance(node, ast.Assert)
        or (isinstance(node, ast.Raise) and "AssertionError" in ast.unparse(node))
        for node in ast.walk(ast.parse(code))
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
    if not reading.MINUTES.search(first):
        yield 0, "the first cell does not say how long it takes: About 30 minutes to read"
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
    if not any(is_drawn(cell) or calls(TRAINS, cell) for cell in beginning):
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
    for at, cell in enumerate(cells):
        if cell.cell_type == "code" and not is_folded(cell):
            spans = [range(one.lineno, one.end_lineno + 1) for one in calls(DRAWS, cell)]
            if (lines := len(set().union(*spans))) > PLOTTING:
                yield (
                    at,
                    f"{lines} lines call Matplotlib: at most {PLOTTING}; fold the cell"
                    " (jupyter.source_hidden) or move the drawing to distlab.plots",
                )


def calls(names: re.Pattern[str], cell: NotebookNode) -> list[Any]:
    """Returns the calls in a code cell of what has one of these names."""
    nodes = ast.walk(ast.parse(python(cell.source)))
    return [
        node
        for node in nodes
        if isinstance(node, ast.Call) and names.search(ast.unparse(node.func))
    ]


def python_in(cell: NotebookNode) -> list[str]:
    """Returns the Python of a cell: its code, or what is fenced in its text."""
    return [python(cell.source)] if cell.cell_type == "code" else blocks(cell.source)


def words(cells: Sequence[NotebookNode]) -> Iterator[Problem]:
    """Yields the worst words of what is written, in prose and in code."""
    for at, cell in enumerate(cells):
        texts = [prose(cell.source)] if cell.cell_type == "markdown" else []
        texts += [text for part in python_in(cell) for text in remarks(part)]
        yield from ((at, message) for text in texts for message in worst_words(text))


def problems(path: Path) -> list[str]:
    """Returns what is wrong with a lesson, one line each, in the order of the cells."""
    cells = nbformat.read(path, as_version=4).cells
    found: list[Problem] = []
    for at, cell in enumerate(cells):
        for part in python_in(cell):
            try:
                ast.parse(part)
            except SyntaxError as error:
                found.append((at, f"its code cannot be parsed: {error.msg}"))
    if not found:
        found += [*predictions(cells), *reading.problems(cells), *plots(cells), *words(cells)]
        found += shape(cells, path.name == START)
        if (takes := to_run().get(path.name)) and f"to read, {takes} to run" not in cells[0].source:
            found.append((0, f"it takes {takes} to run: python tools/lessons.py --times"))
        if path.name != START:
            found += exercises.problems(cells)
    return [f"{path.name}: cell {at}: {problem}" for at, problem in sorted(found)]


def times(paths: Sequence[Path]) -> Iterator[str]:
    """Yields where the start page or README.md say other times to read than the lessons do.

    README.md has a row for each lesson, which links to its file and ends with the minutes.
    """
    lessons = {path.name: nbformat.read(path, as_version=4).cells for path in paths}
    start = " ".join(" ".join(cell.source for cell in lessons.pop(START, ())).split())
    readme = (FOLDER.parent / "README.md").read_text(encoding="utf-8")
    minutes = {name: reading.stated(cells) or 0 for name, cells in lessons.items()}
    span = f"A lesson takes {min(minutes.values())} to {max(minutes.values())} minutes to read"
    if span not in start:
        yield f"the start page should say: {span}"
    for name, value in minutes.items():
        if not re.search(rf"\]\(notebooks/{re.escape(name)}\).*\| {value} min \|", readme):
            yield f"README.md should say {value} min in the row of {name}, as its first cell does"


def to_run() -> dict[str, str]:
    """Returns how long each lesson takes to run, in words."""
    seconds = json.loads(SECONDS.read_text(encoding="utf-8")).items()
    return {Path(name).name: reading.to_run(each) for name, each in seconds if "ipynb" in name}


def write_times(paths: Sequence[Path]) -> None:
    """Writes into first cells how long the lessons take to run."""
    known = to_run()
    for path in [path for path in paths if path.name in known]:
        text = reading.TO_RUN.sub(known[path.name], path.read_text(encoding="utf-8"), count=1)
        path.write_text(text, encoding="utf-8", newline="\n")


def main() -> int:
    """Checks the lessons named on the command line, all without names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("notebooks", nargs="*", type=Path)
    parser.add_argument("--times", action="store_true", help="write how long they take to run")
    arguments = parser.parse_args()
    paths = arguments.notebooks or sorted(FOLDER.glob("*.ipynb"))
    if arguments.times:
        write_times(paths)
    found = [problem for path in paths for problem in problems(path)]
    if not arguments.notebooks:
        found += times(paths)
    print("\n".join([*found, f"{len(paths)} lessons, {len(found)} to put right: docs/writing.md"]))
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
