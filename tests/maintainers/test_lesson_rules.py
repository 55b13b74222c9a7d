"""The rules for lessons: a small lesson that keeps them all, and each rule broken once."""

import re
import sys
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
from _lessons import code, prose, save
from _tools import ROOT, tool
from nbformat import NotebookNode

lessons = tool("lessons")
words = tool("worst_words")

TITLE = """# A small lesson

Two devices add. It is quick.

At the end you will have
- added.

About 5 minutes to read."""
PLOT = """import matplotlib.pyplot as plt
figure, axes = plt.subplots(2)
for axis, color in zip(axes, ["C0", "C1"]):
    axis.plot([1, 2], color=color)
axes[0].set_title("left")
plt.show()"""
SOLUTION = """<details><summary>Solution</summary>

Add them.

```python
def add(a, b):
    return a + b
```

</details>"""
TITLE_AT, FIT_AT, PREDICT_AT, ANSWERS_AT, PLOT_AT, WRONG_AT, POSED_AT = 0, 1, 2, 3, 4, 5, 7
ANSWER_AT, CHECK_AT, SOLUTION_AT, LAST_AT = 8, 9, 10, 11


@pytest.fixture(autouse=True)
def seconds(tmp_path, monkeypatch):
    monkeypatch.setattr(lessons, "SECONDS", tmp_path / "seconds.json")
    lessons.SECONDS.write_text('{"notebooks/good.ipynb": 31}')


def lesson() -> list[NotebookNode]:
    """The cells of a lesson that keeps every rule."""
    return [
        prose(TITLE),
        code("model.fit(x)"),
        prose(
            "In section 7 device 1 had 3 rows.\n\n**Predict.** What is the sum on device 4?\n\n"
            "<details><summary>A hint</summary>\n\nMore than 9.\n\n</details>"
        ),
        code("print(f'device 4: {4 + 6}')", "device 4: 10\n", jupyter={"outputs_hidden": True}),
        code(PLOT),
        prose("## 1. When it goes wrong\n\nThe whole batch is sharded."),
        prose("## 2. On real hardware\n\nThe same.\n\n## 3. Exercises"),
        prose("**1. Repair the sum.** It is too small. What is missing?"),
        code("def add(a, b):\n    return a", tags=["exercise"]),
        code(
            "print('Right.' if add(1, 2) == 3 else 'Not yet: b is missing.')",
            "Not yet: b is missing.\n",
            tags=["check"],
        ),
        prose(SOLUTION),
        prose("## What you have seen\n\n- A sum."),
    ]


def problems(folder: Path, cells: list[NotebookNode], name: str = "small.ipynb") -> list[str]:
    return lessons.problems(save(folder / name, cells))


def text(at: int, old: str, new: str) -> Callable[[list[NotebookNode]], None]:
    """A change of what a cell says."""

    def change(cells):
        assert cells[at].source.count(old) == 1
        cells[at].source = cells[at].source.replace(old, new)

    return change


def fields_of(at: int, **fields: object) -> Callable[[list[NotebookNode]], None]:
    """A change of fields of a cell: its metadata, its outputs."""

    def change(cells):
        cells[at].update(fields)

    return change


def instead(at: int, *new: NotebookNode) -> Callable[[list[NotebookNode]], None]:
    def change(cells):
        cells[at : at + 1] = new

    return change


BROKEN = {
    "a prediction that tells": (
        text(PREDICT_AT, "What is the sum on device 4?", "The sum is large."),
        (PREDICT_AT, "the prediction is no question: it ends with 'dict.** The sum is large.'"),
    ),
    "a prediction that asks twice": (
        text(PREDICT_AT, "What is the sum", "What? What is the sum"),
        (PREDICT_AT, "the prediction asks more than one question"),
    ),
    "a prediction with its answer": (
        text(PREDICT_AT, "What is the sum on device 4?", "Is the sum 10.0?"),
        (PREDICT_AT, "the prediction names 10.0, and so does the output of cell 3"),
    ),
    "a prediction in a paragraph": (
        text(PREDICT_AT, "rows.\n\n**Predict", "rows. **Predict"),
        (PREDICT_AT, "**Predict** stands inside a paragraph"),
    ),
    "a prediction and more text": (
        text(PREDICT_AT, "</details>", "</details>\n\nIt is 4 + 6."),
        (PREDICT_AT, "text follows the prediction"),
    ),
    "a prediction without code": (
        instead(3, prose("It is large.")),
        (PREDICT_AT, "no code follows the prediction"),
    ),
    "a prediction and no answer": (
        instead(3, code("4 + 6;")),
        (PREDICT_AT, "cell 4 should show the answer to the prediction, and shows nothing"),
    ),
    "an open picture below the answer": (
        fields_of(PLOT_AT, outputs=code("", "a picture").outputs),
        (PLOT_AT, "the answer to a prediction: fold its output"),
    ),
    "an assert below a prediction": (
        text(ANSWERS_AT, "print(", "assert 4 + 6 == 10\nprint("),
        (ANSWERS_AT, "asserts below a prediction"),
    ),
    "a failure below a prediction": (
        text(ANSWERS_AT, "print(", "if not 4:\n    raise AssertionError('no')\nprint("),
        (ANSWERS_AT, "asserts below a prediction"),
    ),
    "an assert above the answer": (
        instead(ANSWERS_AT, code("assert 4 + 6 == 10"), lesson()[ANSWERS_AT]),
        (ANSWERS_AT, "asserts below a prediction"),
    ),
    "an assert in view after the answer": (
        text(PLOT_AT, "plt.show()", "assert axes[0].lines"),
        (PLOT_AT, "asserts about a prediction: fold the cell"),
    ),
    "an answer in the code": (
        text(ANSWERS_AT, "f'device 4: {4 + 6}'", "'device 4: 10'"),
        (ANSWERS_AT, "the code says the answer before it runs: 'device 4: 10'"),
    ),
    "an answer in view": (
        fields_of(ANSWERS_AT, metadata={"jupyter": {"source_hidden": True}}),
        (ANSWERS_AT, "the answer to a prediction: fold its output"),
    ),
    "a wrong time": (
        text(TITLE_AT, "About 5 minutes", "About 10 minutes"),
        (0, "About 10 minutes to read: it takes 5"),
    ),
    "too many words": (
        instead(
            TITLE_AT,
            prose(TITLE.replace("About 5", "About 25")),
            prose("word " * 4_000),
        ),
        (0, "4,079 words in view: at most 4,000"),
    ),
    "too many folded words": (
        text(SOLUTION_AT, "Add them.", "Add them. " + "word " * 1_500),
        (0, "1,508 folded words: at most 1,500"),
    ),
    "too much code": (
        instead(FIT_AT, code("model.fit(x)\n" * 600, jupyter={"source_hidden": True})),
        (0, "610 lines of code: at most 600"),
    ),
    "no title": (text(TITLE_AT, "# A small", "A small"), (0, "there is no title")),
    "no promise": (
        text(TITLE_AT, "At the end you will have\n", ""),
        (0, "the first cell does not say what the reader will have seen"),
    ),
    "no time": (
        text(TITLE_AT, "About 5 minutes to read.", ""),
        (0, "the first cell does not say how long it takes"),
    ),
    "a section missing": (
        text(WRONG_AT, "When it goes wrong", "When it works"),
        (LAST_AT, "there is no section 'When it goes wrong'"),
    ),
    "nothing moves": (
        text(FIT_AT, "model.fit(x)", "%%writefile main.py\nmodel.fit(x)"),
        (10, "nothing is trained, started or drawn in the first 10 cells"),
    ),
    "a long plot": (
        text(PLOT_AT, 'axes[0].set_title("left")', 'axes[0].set_title(\n    "left"\n)'),
        (PLOT_AT, "6 lines call Matplotlib: at most 5"),
    ),
    "a bad word": (
        text(WRONG_AT, "The whole batch is sharded", "The batch is cut"),
        (WRONG_AT, '"cut": write split or sharded, a split ('),
    ),
    "a bad word in a comment": (
        text(FIT_AT, "model.fit(x)", "model.fit(x)  # the kernel stays\n# whole"),
        (FIT_AT, '"whole": write full, complete, or replicated ('),
    ),
    "code that is none": (text(FIT_AT, "(x)", "(x"), (FIT_AT, "its code cannot be parsed")),
    "no exercise": (
        instead(POSED_AT, prose("Repair the sum.")),
        (LAST_AT, "there is no exercise"),
    ),
    "a wrong number": (
        text(POSED_AT, "**1.", "**2."),
        (POSED_AT, "this is exercise 1, not 2: number them from 1"),
    ),
    "no answer cell": (
        fields_of(ANSWER_AT, metadata={}),
        (ANSWER_AT, "here should be the code cell with the tag exercise"),
    ),
    "a stray tag": (
        fields_of(3, metadata=lesson()[3].metadata | {"tags": ["check"]}),
        (3, "a cell with the tag check that belongs to no exercise"),
    ),
    "right at once": (
        fields_of(CHECK_AT, outputs=code("", "Right.\n").outputs),
        (CHECK_AT, "says 'Right.\\n' before the reader has done anything"),
    ),
    "nothing to change": (
        text(ANSWER_AT, "def add(a, b):\n    return a", "add = None  # a function"),
        (POSED_AT, "every answer is a value to fill in"),
    ),
    "an open solution": (
        text(SOLUTION_AT, "<details><summary>Solution</summary>\n\n", ""),
        (SOLUTION_AT, "here should be the solution"),
    ),
    "two blocks": (
        text(SOLUTION_AT, "Add them.\n", "Add them.\n\n```python\nadd = sum\n```\n"),
        (SOLUTION_AT, "the solution has 2 python blocks"),
    ),
    "code alone": (
        text(SOLUTION_AT, "Add them.\n\n", ""),
        (SOLUTION_AT, "the solution is code alone"),
    ),
    "no change": (
        text(SOLUTION_AT, "return a + b", "return a"),
        (SOLUTION_AT, "the solution is the answer cell as it stands"),
    ),
}
"""What is broken in a lesson, and which cell is named with which words."""


def test_a_lesson_that_keeps_the_rules_passes(tmp_path):
    assert problems(tmp_path, lesson()) == []


def test_each_broken_rule_is_named_and_nothing_else(tmp_path, subtests):
    for name, (change, expected) in BROKEN.items():
        with subtests.test(name):
            cells = lesson()
            change(cells)
            (problem,) = problems(tmp_path, cells)
            at, message = expected
            assert problem.startswith(f"small.ipynb: cell {at}: {message}")


def test_a_long_lesson_is_named(tmp_path):
    cells = lesson()
    cells[6:6] = [prose("Text.") for _ in range(65 - len(cells))]
    assert problems(tmp_path, cells) == []
    cells[6:6] = [prose("Text.")]
    (problem,) = problems(tmp_path, cells)
    assert "66 cells: at most 65" in problem


def test_what_is_read_and_how_long_that_takes():
    fence = "```python\nx = 1\n\ny = 2\n```"
    details = "<details><summary>A hint</summary>\n\nTwo words more.\n\n</details>"
    cells = [
        prose(f"Read `x` and [this page](a_long/target.md) - now.\n\n{fence}\n\n{details}"),
        code("x = 1\n\n" * 30),
        code("x = 1\n" * 100, jupyter={"source_hidden": True}),
        prose("**Predict.** What is x?"),
    ]
    counts, minutes = tool("reading").reading(cells)
    assert list(counts.values()) == [19, 5, 4, 130]
    assert minutes == 10  # 0.05 of words, 8 of 32 lines in view, 1 of a prediction


def test_the_start_page_needs_no_exercises_and_no_hardware(tmp_path):
    kept = [cell for at, cell in enumerate(lesson()) if not WRONG_AT <= at < LAST_AT]
    assert problems(tmp_path, kept, lessons.START) == []
    assert len(problems(tmp_path, kept)) == 4


def test_a_picture_is_a_beginning_and_a_line_of_text_is_not(tmp_path):
    cells = lesson()
    cells[FIT_AT] = code("draw()")
    output = nbformat.v4.new_output("display_data", {"text/plain": "a mesh"})
    cells[FIT_AT].outputs = [output]
    assert len(problems(tmp_path, cells)) == 1
    output.data["text/html"] = "<svg/>"
    assert problems(tmp_path, cells) == []


def test_a_folded_cell_may_plot(tmp_path):
    cells = lesson()
    cells[PLOT_AT].source += "\naxes[0].set_xlabel('x')\naxes[1].set_xlabel('x')"
    assert len(problems(tmp_path, cells)) == 1
    cells[PLOT_AT].metadata.jupyter = {"source_hidden": True}
    assert problems(tmp_path, cells) == []


def test_only_calls_to_matplotlib_count(tmp_path, subtests):
    table = {
        "import matplotlib.pyplot as plt": 0,
        "figure, (left, right) = plt.subplots(2)\nleft.plot(x)\nright.plot(x)": 3,
        "for axis, name in ((left, 'a'), (right, 'b')):\n    axis.plot(x)\n    print(name)": 1,
        "for name in mesh.axes:\n    name.upper()": 0,
        "axes[0].add_patch(box)\nfigure.suptitle('a')": 2,
        "def bars(axis, model):\n    axis.bar(\n        1\n    )\n    model.fit()": 3,
        "optimizer.step()\nprint(len(names))": 0,
        "handles = [plt.Rectangle((0, 0), 1, 1) for _ in names]": 1,
        "keras.distribution.set_distribution(plan)\nplan.text = 3": 0,
    }
    for source, expected in table.items():
        with subtests.test(source):
            cells = [code("\n".join([source, *["plt.plot()"] * (6 - expected)]))]
            ((_, problem),) = lessons.plots(cells)
            assert problem.startswith("6 lines call Matplotlib")
            cells[0].source = cells[0].source.removesuffix("plt.plot()")
            assert list(lessons.plots(cells)) == []


# What is named stands in brackets.
SENTENCES = """\
The rows are [cut]. We [cut] the rows, [uncut] before. [Cutting] is easy. A pair of [cuts].
The bias is [whole] on each device. Each holds a [whole] copy, and has the [whole] of it.
Whole numbers, the whole batch, as a whole.
Four [pieces], one [piece] of them. A piece of code, a shortcut, knowledge of the mesh, known.
Where the result [lies], and what [lay] there. We lay out an array. Belief, believe.
It is laid out [anew], [in earnest].
You [hear nothing of] the other. The file [knows nothing of] meshes, and [knows of] no others.
It waits [for ever], [in silence]. When [shall] we stop? [Without more ado].
Equal, but not [to the last bit].
It stores the layout [besides]. Besides weights there are moments. Besides, it is fast.
On a disk [of one's own], [mended] after a [typing error].
The relationship between marshalling and amending. So as to fit in memory.
[As to] the time: no gain.
"""


def test_the_worst_words_are_found_and_only_they(subtests):
    for line in SENTENCES.splitlines():
        with subtests.test(line):
            plain = line.replace("[", "").replace("]", "")
            found = [re.match('"(.*?)"', message)[1] for message in words.worst_words(plain)]
            assert sorted(found) == sorted(re.findall(r"\[(.*?)\]", line))
    everything = re.sub(r"[][]", "", SENTENCES)
    for pattern in words.WORST:
        assert re.search(rf"(?im)\b(?:{pattern})(?!\w)", everything), pattern


def test_what_the_guide_proposes_has_none_of_them():
    guide = (ROOT / "docs" / "writing.md").read_text()
    pairs = re.findall(r"^\| (?!---|not so)(.*) \| (.*) \|$", guide, re.M)
    assert len(pairs) > 10
    assert [found for _, after in pairs for found in words.worst_words(after)] == []


def test_code_and_addresses_are_no_words(tmp_path):
    cells = lesson()
    cells[
        WRONG_AT
    ].source += (
        "\n\nThe option `cut`, on [a page](https://example.org/whole/cut).\n\n```sh\ncut -f 1\n```"
    )
    cells[FIT_AT].source += "\ncut = whole"
    assert problems(tmp_path, cells) == []


def test_a_lesson_that_breaks_a_rule_fails_the_check(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "notebooks"
    folder.mkdir()
    monkeypatch.setattr(lessons, "FOLDER", folder)
    monkeypatch.setattr(sys, "argv", ["lessons.py"])  # all lessons
    timed = TITLE.replace("to read", "to read, a minute to run")
    save(folder / "good.ipynb", [prose(timed), *lesson()[1:]])
    start = [prose(TITLE + "\n\nA lesson takes 5\nto 5 minutes to read."), *lesson()[1:]]
    save(folder / lessons.START, start)
    row = "| [A small lesson](notebooks/{}.ipynb) | a sum | none | {} min |\n"
    readme = tmp_path / "README.md"
    readme.write_text(row.format("good", 5))
    assert lessons.main() == 1
    said = capsys.readouterr().out
    assert "good.ipynb: cell 0: it takes half a minute to run" in said
    monkeypatch.setattr(sys, "argv", ["lessons.py", "--times"])
    assert lessons.main() == 0
    assert "5 minutes to read, half a minute to run." in (folder / "good.ipynb").read_text()
    save(folder / "bad.ipynb", lesson()[:-1])
    readme.write_text(row.format("good", 5) + row.format("bad", 10))
    save(folder / lessons.START, lesson())
    assert lessons.main() == 1
    said = capsys.readouterr().out
    assert "bad.ipynb: cell 10: there is no section 'What you have seen'" in said
    assert "the start page should say: A lesson takes 5 to 5 minutes to read" in said
    assert "README.md should say 5 min in the row of bad.ipynb" in said
    assert "good.ipynb" not in said
    assert "3 lessons, 3 to put right" in said
