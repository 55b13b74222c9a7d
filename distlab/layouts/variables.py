"""The variables of a model: the names that layout rules match, and where each of them is."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from distlab.errors import of_type
from distlab.layouts.no_layout import LostValueError, PlainTensorError
from distlab.layouts.readers import home_of, layout_of
from distlab.layouts.view import Layout, itemsize


@dataclass(frozen=True)
class Variable:
    """One variable of a model.

    Attributes:
        path: What layout rules match: `variable.path` in Keras, the attributes that lead to the
            variable in tf_keras (`d1.kernel`), the parameter's name in PyTorch.
        shape: The whole variable's shape.
        dtype: The name of its data type.
        layout: Where its slices are; None if it is plain, on one device.
        framework: The package that its class comes from, such as `"keras"`.
        rule: The key of the layout rule that matched, an empty string if none did.
        lost: Whether a failed training step has lost its value; `layout` is then what it had.
    """

    path: str
    shape: tuple[int, ...]
    dtype: str
    layout: Layout | None
    framework: str
    rule: str = ""
    lost: bool = False

    @property
    def nbytes(self) -> int:
        """Bytes of the whole variable; 0 if its type is not known."""
        return (itemsize(self.dtype) or 0) * math.prod(self.shape)


def variables_of(model: Any, *, lost: bool = False) -> list[Variable]:
    """Return the variables of what `layouts.table` takes, with its errors.

    Those whose values a failed training step has lost are an error, too, unless `lost`.
    """
    variables = [_variable(path, each) for path, each in _named(model)]
    gone = [variable.path for variable in variables if variable.lost]
    if gone and not lost:
        raise LostValueError(gone)
    return variables


def _variable(path: str, variable: Any) -> Variable:
    if not hasattr(variable, "shape"):
        raise TypeError(f"{path!r} must be a variable or an array, not {of_type(variable)}.")
    shape = tuple(int(n) for n in variable.shape)
    dtype = getattr(variable, "dtype", None)
    name = str(getattr(dtype, "name", dtype)).removeprefix("torch.")
    known = Variable(path, shape, name, None, home_of(type(variable)))
    try:
        return replace(known, layout=layout_of(variable))
    except PlainTensorError:
        return known
    except LostValueError:  # Keras keeps the layout that it built a variable with
        kept = getattr(variable, "_layout", None)
        return replace(known, layout=kept and layout_of(kept, shape), lost=True)


def _named(model: Any) -> list[tuple[str, Any]]:
    named: list[tuple[str, Any]]
    if isinstance(model, Mapping):
        named = [(str(name), variable) for name, variable in model.items()]
    elif isinstance(model, (list, tuple)):
        named = [
            (_name(each) if hasattr(each, "shape") else f"[{i}]", each)
            for i, each in enumerate(model)
        ]
    elif is_module(model):
        named = [*model.named_parameters(), *model.named_buffers()]
    elif _comes_from(model, "tf_keras"):
        named = _object_paths(model)
    elif hasattr(model, "variables") and not isinstance(model, type):
        named = [(_name(variable), variable) for variable in model.variables]
    else:
        raise TypeError(
            f"Expected a model or its variables, not {type(model).__name__}: a Keras or tf_keras "
            "model, a PyTorch module, or a dict or list of variables."
        )
    if not named:
        raise ValueError(
            f"This {type(model).__name__} has no variables yet: build it, or call it on data once."
        )
    return named


def is_model(obj: Any) -> bool:
    """Whether it is a model, or a layer, of one of the frameworks."""
    return is_module(obj) or (hasattr(obj, "trainable_weights") and not isinstance(obj, type))


def is_module(model: Any) -> bool:
    """Whether it is a PyTorch module, and none of those that Keras makes of its layers."""
    return hasattr(model, "named_parameters") and not _comes_from(model, "keras")


def _name(variable: Any) -> str:
    name = getattr(variable, "path", None) or getattr(variable, "name", None)
    return re.sub(r":\d+$", "", str(name)) if name else type(variable).__name__


def _comes_from(model: Any, package: str) -> bool:
    return any(base.__module__.startswith(f"{package}.") for base in type(model).__mro__)


def _object_paths(model: Any) -> list[tuple[str, Any]]:
    """The attributes that lead to each weight, as tf_keras writes them for its LayoutMap."""
    wanted = {id(weight) for weight in model.weights}
    functional = any(base.__name__ == "Functional" for base in type(model).__mro__)
    roots = [(f"{layer.name}.", layer) for layer in model.layers] if functional else [("", model)]
    named: dict[int, tuple[str, Any]] = {}
    for prefix, root in roots:
        for path, leaf in root._flatten(with_path=True, predicate=lambda o: id(o) in wanted):
            # Lists in which layers keep their weights a second time.
            if not any(str(part).startswith("_") for part in path):
                named.setdefault(id(leaf), (prefix + ".".join(map(str, path)), leaf))
    return [named.get(id(w), (_name(w), w)) for w in model.weights]


def output_paths(model: Any) -> list[str]:
    """Return the paths under which Keras looks for rules about layers' outputs."""
    if _comes_from(model, "tf_keras") or not hasattr(model, "_flatten_layers"):
        return []
    paths = (getattr(layer, "path", None) for layer in model._flatten_layers())
    return [f"{path}/output" for path in paths if path]


def model_names(model: Any) -> list[str]:
    """Return the names of a Keras model and of the models in it, with which paths may begin."""
    if _comes_from(model, "tf_keras") or not hasattr(model, "_flatten_layers"):
        return []
    layers = list(model._flatten_layers())
    plain = {layer.name for layer in layers if not hasattr(layer, "compile_from_config")}
    return [layer.name for layer in layers if layer.name not in plain]
