"""How the public functions meet the reader: short signatures in help, short tracebacks.

An error that distlab raises on purpose is about the reader's line, so its traceback ends one frame
below that line, and shows no source of that frame; in IPython it ends with that line. Any other
error keeps all of its frames: they lead to a bug.
"""

import contextlib
import functools
import inspect
import linecache
import os
import sysconfig
import traceback
import types
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Generic, ParamSpec, TypeVar, cast

from distlab.shell import ipython_shell
from distlab.wording import misfit

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

_OWN = Path(__file__).parent
_SHOWN = "<distlab>"
"""The file that a public function's frame names: one without source, so that it takes one line."""
_LIBRARIES = tuple(sysconfig.get_path(kind) + os.sep for kind in ("stdlib", "purelib", "platlib"))


def public(function: Callable[P, R]) -> Callable[P, R]:
    """Mark a function or a method as one that readers call.

    Help shows its parameters and their defaults, and no annotations, which type checkers and
    `typing.get_type_hints` still see. Errors that distlab raises on purpose show no other frame of
    distlab than this function's.

    Args:
        function: The function. Of a context manager mark the function that makes it, below
            `contextmanager`, with `block`.

    Returns:
        A function of the same name, docstring and type. It pickles by reference, and doctest
        finds its examples.
    """
    error_of_use = _error_of_use

    def call(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True  # for IPython and pytest, where this frame isn't the last
        try:
            return function(*args, **kwargs)
        except (Exception, KeyboardInterrupt) as error:
            told = error_of_use(error, function, args, kwargs)
            if told is not None:
                raise told.with_traceback(None) from told.__cause__
            raise

    # Tracebacks name a frame by its code, and doctest asks a function for its module's names.
    code = call.__code__.replace(
        co_filename=_SHOWN,
        co_name=function.__name__,
        co_qualname=getattr(function, "__qualname__", ""),
    )
    names = inspect.unwrap(function).__globals__
    shown = types.FunctionType(code, names, function.__name__, None, call.__closure__)
    functools.update_wrapper(shown, function)
    shown.__dict__["__signature__"] = _without_annotations(inspect.signature(function))
    return cast(Callable[P, R], shown)


def constructed(kind: type[T]) -> type[T]:
    """Mark a class that readers make instances of: its constructor is `public`."""
    setattr(kind, "__init__", public(kind.__init__))  # noqa: B010 - mypy takes it for an override
    return kind


def block(function: Callable[P, Iterator[T]]) -> Callable[P, AbstractContextManager[T]]:
    """Make a context manager that readers use out of a generator: `contextmanager` with `public`.

    Args:
        function: A generator function that yields once.

    Returns:
        A function whose result is for a `with` statement.
    """
    make = contextlib.contextmanager(function)

    @functools.wraps(function)
    def blocked(*args: P.args, **kwargs: P.kwargs) -> AbstractContextManager[T]:
        return _Block(make(*args, **kwargs))

    return public(blocked)


def _error_of_use(
    error: Exception | KeyboardInterrupt,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> BaseException | None:
    """The error to show to the reader whose line is wrong; None if distlab may be."""
    if isinstance(error, KeyboardInterrupt):
        return error if hasattr(error, "_render_traceback_") else None
    if not raised_on_purpose(error):
        words = misfit(function, args, kwargs, error) if isinstance(error, TypeError) else None
        if words is None:
            return None
        error = TypeError(words)
    cause = error.__cause__
    if cause is not None and not readers_line(cause):  # what it says is of use, not where it was
        cause.__traceback__ = None
    if ipython_shell() is not None and not hasattr(error, "_render_traceback_"):
        error._render_traceback_ = functools.partial(_rendered, error)  # type: ignore[attr-defined]
    return error


def _rendered(error: Exception) -> list[str]:
    """What IPython shows of an error of use: all but the last frame, which is a public function's.

    IPython leaves out a frame with `__tracebackhide__`, but never the last one.
    """
    tabulator = ipython_shell().InteractiveTB
    lines: list[str] = tabulator.structured_traceback(
        type(error), error, _without_last(error.__traceback__), tabulator.tb_offset
    )
    return lines


def _without_last(trace: types.TracebackType | None) -> types.TracebackType | None:
    """A copy of a traceback without a public function's frame at its end."""
    if trace is None or (trace.tb_next is None and trace.tb_frame.f_code.co_filename == _SHOWN):
        return None
    following = _without_last(trace.tb_next)
    return types.TracebackType(following, trace.tb_frame, trace.tb_lasti, trace.tb_lineno)


def is_own(filename: str) -> bool:
    """Whether the code of a file, as a traceback names it, is distlab's."""
    return filename == _SHOWN or Path(filename).is_relative_to(_OWN)


def raised_on_purpose(error: BaseException) -> bool:
    """Whether a `raise` of distlab brought an error, with no code of anybody else in between."""
    frames = traceback.extract_tb(error.__traceback__)
    if not all(_is_ours(frame) for frame, _ in traceback.walk_tb(error.__traceback__)):
        return False
    return bool(frames) and _source(frames[-1]).startswith("raise ")


def _is_ours(frame: types.FrameType) -> bool:
    file = frame.f_code.co_filename
    if file == "<string>":  # the `__init__` that a dataclass writes
        return str(frame.f_globals.get("__name__")).startswith(f"{__package__}.")
    return is_own(file) or file == contextlib.__file__


def _source(frame: traceback.FrameSummary) -> str:
    """The line a frame is at, also where readers are not shown it."""
    if frame.filename == _SHOWN:
        return linecache.getline(__file__, frame.lineno or 0).strip()
    return frame.line or ""


def readers_line(error: BaseException) -> str:
    """The innermost line of a traceback that the reader wrote: `line 3: distlab.run(fail, 4)`.

    Of its file nothing is said: stored outputs hold no paths. Empty if there is no such line.
    """
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if is_own(frame.filename) or frame.filename.startswith(_LIBRARIES) or not frame.line:
            continue
        within = "" if frame.name.startswith("<") else f", in {frame.name}"
        return f"line {frame.lineno}{within}: {frame.line}"
    return ""


def _without_annotations(signature: inspect.Signature) -> inspect.Signature:
    empty = inspect.Parameter.empty
    bare = [each.replace(annotation=empty) for each in signature.parameters.values()]
    return signature.replace(parameters=bare, return_annotation=inspect.Signature.empty)


class _Block(Generic[T]):
    """A context manager whose own errors have short tracebacks; those of its block pass as is."""

    def __init__(self, manager: AbstractContextManager[T]) -> None:
        self._manager = manager

    @public
    def __enter__(self) -> T:
        return self._manager.__enter__()

    @public
    def __exit__(self, *raised: Any) -> bool | None:
        return self._manager.__exit__(*raised)
