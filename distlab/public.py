"""How the public functions meet the reader: short signatures in help, short tracebacks at errors.

An error that distlab raises on purpose is about the reader's line, so its traceback ends one frame
below that line. Any other error keeps all of its frames: they lead to a bug.
"""

import contextlib
import functools
import inspect
import traceback
import types
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Generic, ParamSpec, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

_OWN = Path(__file__).parent


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
    on_purpose = raised_on_purpose

    def call(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True  # for IPython and pytest, where this frame isn't the last
        try:
            return function(*args, **kwargs)
        except Exception as error:
            if on_purpose(error):
                raise error.with_traceback(None) from error.__cause__
            raise

    # Tracebacks name a frame by its code, and doctest asks a function for its module's names.
    code = call.__code__.replace(
        co_name=function.__name__, co_qualname=getattr(function, "__qualname__", "")
    )
    names = inspect.unwrap(function).__globals__
    shown = types.FunctionType(code, names, function.__name__, None, call.__closure__)
    functools.update_wrapper(shown, function)
    shown.__dict__["__signature__"] = _without_annotations(inspect.signature(function))
    return cast(Callable[P, R], shown)


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


def raised_on_purpose(error: BaseException) -> bool:
    """Whether a `raise` of distlab brought an error, with no code of anybody else in between."""
    frames = traceback.extract_tb(error.__traceback__)
    own = all(
        Path(frame.filename).is_relative_to(_OWN) or frame.filename == contextlib.__file__
        for frame in frames
    )
    return own and bool(frames) and (frames[-1].line or "").startswith("raise ")


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
