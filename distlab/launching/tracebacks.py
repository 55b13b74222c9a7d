"""The text of a rank's error: the target's own lines, cells by their names, cut if too long."""

import re
import traceback
import types
from collections.abc import Collection
from pathlib import Path

from distlab.errors import is_own, listed

_CELL = re.compile(r'File "(Cell In\[\d+\])"')
_INNER = re.compile(r"^ +(\w+(?:Error|Exception): .*)", re.MULTILINE)
"""What TensorFlow says went wrong, below the lines of the reader's function."""
TIMED_OUT = re.compile(r"time(d ?| ?)out|deadline.exceeded", re.IGNORECASE)
"""What the frameworks say when a rank has waited in vain for another one."""
_PACKAGE = re.escape(f"{Path(__file__).parents[1]}/")
LIBRARY = re.compile(rf"/site-packages/|/lib/python3\.|<frozen |{_PACKAGE}")
"""What the file of a frame has in it if it is not the reader's."""
_FRAMES = re.compile(
    rf"""(?:  File "[^"\n]*(?:{LIBRARY.pattern})[^"\n]*", line \d+,? in .*\n(?:    .*\n)*)+"""
    r"""(?=  (?:File "|Cell In))"""
)
"""Frames of libraries before another one: of those in which the error was raised all but it."""
_STACK = re.compile(r"\(most recent call first\):((?:\n  .*)+)")
_ROOT = re.compile(
    r"""(?<=File ")[^"\n]*(?:/site-packages/|/lib/python3\.\d+/)(?=[^"\n]*", line \d+ in )"""
)
"""Of a library's file, where in a stack, all before the name of its package."""
_FIRST, _LAST = 30, 60
"""How many lines of a text are shown at least, if it is too long for all of them."""
_WIDEST = 2000
"""How many characters of a line are shown."""
_HEADLINE = 300
_FINGERPRINT = re.compile(r"CollectiveFingerPrint\(.*?OpType=(\w+)((?!, but|\.Collectives).)*")
"""All that PyTorch knows of a collective, where two of them differ."""


def from_target(error: BaseException, starting: Collection[types.CodeType]) -> str:
    """The traceback as text, from the target's own first line on.

    A target whose first line wasn't reached has none: a script with a syntax error, say.

    Args:
        error: The error of a rank.
        starting: The code of distlab that starts the target, or says what is wrong with it.
    """
    trace = error.__traceback__
    unreached = False
    while trace is not None and is_own(trace.tb_frame.f_code.co_filename):
        unreached = unreached or trace.tb_frame.f_code in starting
        trace = trace.tb_next
    if trace is not None or unreached:
        error = error.with_traceback(trace)
    text = "".join(traceback.format_exception(error))
    message = "".join(traceback.format_exception_only(error))
    if text.endswith(message):  # that of a group is among its frames
        frames = text.removesuffix(message)
        text = shortened(frames) + "\n" * bool(frames) + message
    return name_cells(text)


def message_of(error: BaseException) -> str:
    """What an error says, also if its class cannot say it; TensorFlow names cells there, too."""
    try:
        return name_cells(str(error))
    except Exception:  # noqa: BLE001 - said in its place, in Python's words
        return "<exception str() failed>"


def name_cells(text: str) -> str:
    """A traceback that names the cells of a notebook as IPython does."""
    return _CELL.sub(r"\1", text)


def without_libraries(text: str) -> str:
    """A traceback in which frames of libraries are only counted, but for the innermost.

    A stack becomes like one: the innermost call last, and a library's file by its package.
    """

    def last_call_last(stack: re.Match[str]) -> str:
        return "\n".join(["(most recent call last):", *stack[1].splitlines()[:0:-1]])

    def counted(run: re.Match[str]) -> str:
        packages = dict.fromkeys(re.findall(r"/site-packages/(\w+)", run[0]))
        count = run[0].count("  File ")
        of = listed(list(packages) or ["distlab" if re.search(_PACKAGE, run[0]) else "Python"])
        return f"  ... {count} frame{'s' * (count > 1)} of {of}\n"

    return _ROOT.sub("", _FRAMES.sub(counted, _STACK.sub(last_call_last, text)))


def shortened(text: str) -> str:
    """A text that a reader can take in: the middle of too many lines, or of a line, is left out."""
    lines = [_narrowed(line) for line in text.splitlines()]
    left_out = len(lines) - _FIRST - _LAST
    if left_out > _FIRST:
        lines[_FIRST:-_LAST] = [f"  ... {left_out:,} lines left out here ..."]
    return "\n".join(lines)


def _narrowed(line: str) -> str:
    left_out = len(line) - _WIDEST
    if left_out <= 0:
        return line
    half = _WIDEST // 2
    return f"{line[:half]} ... {left_out:,} characters left out here ... {line[-half:]}"


def own_place(text: str) -> str:
    """The innermost line of a traceback that is in no library, if any: `a.py, line 3 in step`."""
    frames = re.findall(r'File "(.+)", line (\d+), in (\S+)', text)
    own = [frame for frame in frames if not LIBRARY.search(frame[0])]
    return "".join(f"{file}, line {line} in {name}" for file, line, name in own[-1:])


def in_words(error: BaseException) -> str:
    """An exception's type and message, without its traceback: `OSError: [Errno 28] ...`."""
    return "".join(traceback.format_exception_only(error)).strip()


def headline(text: str) -> str:
    """The first line of a text, if it is not too long, for the first line of an error."""
    first = _FINGERPRINT.sub(r"\1", text.partition("\n")[0])
    if first.endswith(": in user code:") and (inner := _INNER.findall(text)):
        first = f"{first} {inner[-1]}"
    if len(first) > _HEADLINE:
        first = re.sub(r"\s\S{0,40}$", "", first[:_HEADLINE])  # no part of a word
    return first if first == text else f"{first} ..."
