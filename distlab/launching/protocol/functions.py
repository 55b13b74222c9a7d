"""A function on its way to a rank, with what tracebacks need of it."""

import importlib
import importlib.machinery
import inspect
import io
import linecache
import pickle
import sys
import types
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Any

from distlab.errors import ipython_shell, listed


def loads(data: bytes) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """Restore what `dumps` made of a function and its arguments."""
    file = io.BytesIO(data)
    linecache.cache.update(pickle.load(file))
    try:
        target, args, kwargs = pickle.load(file)
    except Exception as error:
        error.add_note("This happened while the rank loaded the function and its arguments.")
        raise
    return target, args, kwargs


def dumps(target: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
    """Two pickles: the sources of notebook cells, for tracebacks; then what to call."""
    import cloudpickle

    cells = {k: v for k, v in linecache.cache.items() if len(v) == 4 and v[1] is None}
    buffer = io.BytesIO()
    names = _cell_names(cells)
    cloudpickle.dump({names[file]: source for file, source in cells.items()}, buffer)
    module = _unimportable(target)
    if module is not None:
        cloudpickle.register_pickle_by_value(module)
    try:
        _dump((target, args, kwargs), buffer, names)
    except Exception as error:  # noqa: BLE001 - raised again, with its words
        named = {"the function": target}
        given = _by_name(target, args) | kwargs
        named |= {f"argument {name!r}": value for name, value in given.items()}
        culprits = [name for name, value in named.items() if not _can_pickle(value)]
        if culprits == ["the function"] and (used := _cannot_be_sent(target)):
            culprits = [f"the function, which uses {listed(used)},"]
        raise TypeError(
            f"Cannot send {' and '.join(culprits) or 'the target'} to another process: {error}. "
            "Make it inside the function, or send what it is made from."
        ) from None
    finally:
        if module is not None:
            cloudpickle.unregister_pickle_by_value(module)
    return buffer.getvalue()


def _by_name(target: Callable[..., Any], args: tuple[Any, ...]) -> dict[Any, Any]:
    """The arguments by their parameters' names; by number, from 0, where those are not known."""
    try:
        return dict(inspect.signature(target).bind_partial(*args).arguments)
    except (TypeError, ValueError):  # some functions of C have no signature
        return dict(enumerate(args))


def _cell_names(files: Collection[str]) -> dict[str, str]:
    """What IPython calls the cells that are in some files: `Cell In[5]`.

    A file keeps its name if IPython has none, or if two cells have the same: those that were run
    without a history are all `Cell In[1]`, and their sources must not be taken for one another.
    """
    name_of = getattr(getattr(ipython_shell(), "compile", None), "format_code_name", lambda _: None)
    names = {file: " ".join(name_of(file) or (file,)) for file in files}
    times = Counter(names.values())
    return {file: name if times[name] == 1 else file for file, name in names.items()}


def _dump(value: Any, buffer: io.BytesIO, names: Mapping[str, str]) -> None:
    import cloudpickle

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        def reducer_override(self, value: Any) -> Any:
            # Tracebacks, warnings and stacks in the rank name the cell, not a file that is gone.
            if isinstance(value, types.CodeType):
                name = names.get(value.co_filename, value.co_filename)
                renamed = value.replace(co_filename=name)
                return self.dispatch_table[types.CodeType](renamed)
            # With a function that says `torch` and `keras.ops`, cloudpickle sends `torch.ops`,
            # too, and fails, because that is no plain module. By name it can be sent.
            if isinstance(value, types.ModuleType) and type(value) is not types.ModuleType:
                name = value.__name__
                if sys.modules.get(name) is value:
                    return importlib.import_module, (name,)
            return super().reducer_override(value)

    Pickler(buffer, protocol=5).dump(value)


def _can_pickle(value: Any) -> bool:
    try:
        _dump(value, io.BytesIO(), {})
    except Exception:  # noqa: BLE001 - any failure is the answer
        return False
    return True


def _cannot_be_sent(target: Callable[..., Any]) -> list[str]:
    """The names that a function takes from outside whose values can't be sent."""
    try:
        found = inspect.getclosurevars(target)
    except TypeError:  # it is no function of Python's
        return []
    return [
        n for n, value in {**found.nonlocals, **found.globals}.items() if not _can_pickle(value)
    ]


def _unimportable(target: Callable[..., Any]) -> types.ModuleType | None:
    """The target's module, if a new process could not import it by its name."""
    function = getattr(target, "func", target)
    module = sys.modules.get(getattr(function, "__module__", None) or "")
    if module is None or module.__name__ == "__main__":
        return None
    root = module.__name__.partition(".")[0]
    if root in sys.builtin_module_names or importlib.machinery.PathFinder.find_spec(root):
        return None
    return module
