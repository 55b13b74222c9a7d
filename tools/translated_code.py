"""The code of translated lessons: the English code with its comments and strings replaced.

`translations/ko/code/02_data_parallel_keras.json` has what a lesson's comments and strings say,
each as it stands in the English code, with its translation. All else stays token for token. A
string that names something (`"model"`, an axis) is not listed, and stays, unless it is added.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cells import source_of, with_source
from setup_cell import address_in

COMMENT = r"#[^\n]*(?:\n[ \t]*#[^\n]*)*"
QUOTED = (
    r'"""(?:[^\\]|\\.)*?"""',
    r"'''(?:[^\\]|\\.)*?'''",
    r'"(?:[^"\\\n]|\\.)*"',
    r"'(?:[^'\\\n]|\\.)*'",
)
REMARK = re.compile(
    rf"{COMMENT}|(?:\b[rbfu]{{1,2}})?(?:{'|'.join(QUOTED)})", re.IGNORECASE | re.DOTALL
)
FIELD = re.compile(r"\{[^{}]*\}|%[-\d.]*[a-z]")
BLOCK = re.compile(r"^```python\n(.*?)^```[ \t]*$", re.DOTALL | re.MULTILINE)
STYLE = "plots.use_style("
LAYOUTS = "\nfrom distlab import layouts\n"
"""What a lesson says that draws layouts and no plots: there is no style to name the language."""


def code_file(root: Path, language: str, page: str) -> Path:
    """Returns the file with the translated remarks of a lesson's code, there or not."""
    return root / "translations" / language / "code" / f"{Path(page).stem}.json"


def with_words(notebook: Any, words: Mapping[str, str], language: str, earlier: Any) -> None:
    """Translates the code of a notebook in place.

    Args:
        notebook: The notebook, with the outputs of the English one.
        words: The remarks and their translations.
        language: The language's code.
        earlier: The notebook as it was written before: cells that say the same keep its outputs,
            others have none until `tools/notebooks.py run` has run them.
    """
    had = {cell["id"]: cell for cell in earlier["cells"]}
    for at, cell in enumerate(notebook["cells"]):
        source = source_of(cell)
        if address_in(source) is not None:
            continue
        if cell["cell_type"] != "code":
            notebook["cells"][at] = with_source(cell, translated_blocks(source, words, language))
            continue
        cell = with_source(cell, translated_code(source, words, language))
        same = had.get(cell["id"], {}).get("source") == cell["source"]
        kept = had[cell["id"]] if same else {"outputs": [], "execution_count": None}
        notebook["cells"][at] = cell | {name: kept[name] for name in ("outputs", "execution_count")}


def problems_of_code(notebook: Any, words: Mapping[str, str], written: Any) -> Iterator[str]:
    """Yields what is wrong with a lesson's translated code.

    Args:
        notebook: The English notebook.
        words: What is stored for it.
        written: The translated notebook.
    """
    renewed = renewed_words(notebook, words)
    yield from problems_of_words(renewed)
    yield from (f"{gone} is gone: make translations" for gone in words.keys() - renewed.keys())
    cells = [cell for cell in written["cells"] if cell["cell_type"] == "code"]
    if any(cell["execution_count"] is None for cell in cells):
        yield "not all of its cells have run: tools/notebooks.py run, with the notebook's path"


def renewed_words(notebook: Mapping[str, Any], words: Mapping[str, str]) -> dict[str, str]:
    """Returns the words for a lesson as it is now: what is new is empty, what is gone is gone."""
    every: list[str] = []
    for cell in notebook["cells"]:
        source = source_of(cell)
        if cell["cell_type"] != "code":
            codes = BLOCK.findall(source)
        else:
            codes = [source] if _is_translated(source) else []
        every += [_flush(match[0]) for code in codes for match in REMARK.finditer(code)]
    more = [remark for remark in words if remark in every]
    return {remark: words.get(remark, "") for remark in [*filter(_is_prose, every), *more]}


def translated_code(code: str, words: Mapping[str, str], language: str) -> str:
    """Returns code with its remarks translated, those that have a translation."""
    if not _is_translated(code):
        return code

    def replaced(match: re.Match[str]) -> str:
        text = words.get(_flush(match[0])) or match[0]
        lines = match[0].split("\n")
        before = code[: match.start()].rpartition("\n")[2]
        indent = re.match(r"[ \t]*", lines[-1] if len(lines) > 1 else before)
        return text.replace("\n", f"\n{indent[0]}") if text[0] == "#" and indent else text

    chosen = f'{STYLE}"{language}")'
    code = REMARK.sub(replaced, code).replace(f"{STYLE})", chosen)
    return code.replace(LAYOUTS, f"{LAYOUTS}\ndistlab.{chosen}\n")


def translated_blocks(text: str, words: Mapping[str, str], language: str) -> str:
    """Returns a cell of Markdown with the remarks of its fenced Python translated."""
    return BLOCK.sub(
        lambda block: block[0].replace(block[1], translated_code(block[1], words, language)), text
    )


def problems_of_words(words: Mapping[str, str]) -> Iterator[str]:
    """Yields what is wrong with the translated remarks of a lesson."""
    for remark, text in words.items():
        said = remark if len(remark) < 60 else f"{remark[:57]}..."
        if not text:
            yield f"{said} is not translated"
        elif remark[0] == "#":
            if not all(line.startswith("#") for line in text.split("\n")):
                yield f"{said}: each line of a comment begins with #"
        elif _frame(remark) != _frame(text) or not _is_string(text):
            yield f"{said}: the translation is no string with the same prefix and quotes"
        elif _fields(remark) != _fields(text):
            yield f"{said}: the translation has other fields, in braces or with %"


def _is_translated(source: str) -> bool:
    """Tells whether a cell is Python, or writes a Python file, and not the set-up cell."""
    magic = source.startswith("%%") and not re.match(r"%%writefile .*\.py\s", source)
    return not magic and address_in(source) is None


def _flush(remark: str) -> str:
    """Returns a comment of several lines without what stands before them."""
    return re.sub(r"\n[ \t]*#", "\n#", remark) if remark[0] == "#" else remark


def _is_prose(remark: str) -> bool:
    if remark[0] == "#":
        return bool(re.search("[A-Za-z]{2}", remark))
    text = FIELD.sub("{}", remark[len(_frame(remark)[0]) :])
    return bool(re.search(r"\b[A-Za-z]{3,}[^\w\s]* \S|\S [^\w\s]*[A-Za-z]{3,}\b", text))


def _frame(remark: str) -> tuple[str, str]:
    """Returns a string's prefix and quotes."""
    found = re.match(r"[A-Za-z]*(\"\"\"|'''|\"|')", remark)
    return (found[0].lower(), remark[-len(found[1]) :]) if found else ("", "")


def _fields(string: str) -> Counter[str]:
    """Returns a string's fields, without widths, which depend on the words, and without strings."""
    return Counter(re.sub(r"(?<=[:<>])\d+|'[^']*'", "", field) for field in FIELD.findall(string))


def _is_string(text: str) -> bool:
    try:
        return isinstance(ast.parse(text, mode="eval").body, ast.Constant | ast.JoinedStr)
    except SyntaxError:
        return False
