"""The variables of a model by the names that layout rules match, and the rules of a LayoutMap."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from distlab.layouts.readers import mesh_of
from distlab.layouts.view import Mesh

FULLMATCH, SEARCH, MATCH = "fullmatch", "search", "match"
_MATCHERS: dict[str, Callable[[re.Pattern[str], str], object]] = {
    FULLMATCH: re.Pattern.fullmatch,
    SEARCH: re.Pattern.search,
    MATCH: re.Pattern.match,
}


@dataclass(frozen=True)
class Rule:
    """One entry of a LayoutMap.

    Attributes:
        key: A regular expression over paths.
        axes: For each dimension the mesh axes that split it.
        on_mesh: Whether its layout is for the map's own mesh.
    """

    key: str
    axes: tuple[tuple[str, ...], ...]
    on_mesh: bool = True


@dataclass(frozen=True)
class Rules:
    """A LayoutMap: its rules, and how paths are matched with them.

    Attributes:
        rules: In the order in which they were given.
        mesh: The devices.
        how: `"fullmatch"` for Keras 3.14 and later, `"search"` for Keras before that, both of
            which want one matching rule at most; `"match"` for tf_keras, where the first counts.
    """

    rules: tuple[Rule, ...]
    mesh: Mesh
    how: str

    def matching(self, path: str, how: str | None = None) -> list[Rule]:
        """Return the rules that claim `path`: a rule that equals it, or else all that match."""
        exact = [rule for rule in self.rules if rule.key == path]
        if exact:
            return exact
        match = _MATCHERS[how or self.how]
        found = [rule for rule in self.rules if match(re.compile(rule.key), path)]
        return found[:1] if self.how == MATCH else found

    def matched(self, key: str, paths: Iterable[str], how: str | None = None) -> list[str]:
        """Return those of `paths` that `key` matches, whatever other rules do."""
        match, pattern = _MATCHERS[how or self.how], re.compile(key)
        return [path for path in paths if path == key or match(pattern, path)]


def named_variables(model: Any) -> list[tuple[str, Any]]:
    """Return the variables of a model with their names.

    Args:
        model: A Keras or tf_keras model or layer, a PyTorch module, a dict of variables by
            name, or a list of variables that have a `path` or a `name`.

    Returns:
        Name and variable. The name is what layout rules match: `variable.path` in Keras,
        the attributes that lead to the variable in tf_keras (`d1.kernel`), the parameter's name
        in PyTorch.

    Raises:
        TypeError: If it is none of these.
        ValueError: If it has no variables (yet).
    """
    named: list[tuple[str, Any]]
    if isinstance(model, Mapping):
        named = [(str(name), variable) for name, variable in model.items()]
    elif isinstance(model, (list, tuple)):
        named = [(_name(variable), variable) for variable in model]
    elif hasattr(model, "named_parameters") and not is_keras(model):
        named = [*model.named_parameters(), *model.named_buffers()]
    elif _is_tf_keras(model):
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


def output_paths(model: Any) -> list[str]:
    """Return the paths under which Keras looks for rules about layers' outputs."""
    if _is_tf_keras(model) or not hasattr(model, "_flatten_layers"):
        return []
    paths = (getattr(layer, "path", None) for layer in model._flatten_layers())
    return [f"{path}/output" for path in paths if path]


def read_rules(layout_map: Any) -> Rules:
    """Read a Keras or tf_keras `LayoutMap`.

    Raises:
        TypeError: If it is not one, or has no mesh.
    """
    if hasattr(layout_map, "get_default_mesh"):
        return _read_tf_keras(layout_map)
    if not (isinstance(layout_map, Mapping) and hasattr(layout_map, "device_mesh")):
        raise TypeError(
            f"Expected a LayoutMap of Keras or tf_keras, not {type(layout_map).__name__}."
        )
    mesh = layout_map.device_mesh
    if mesh is None:
        raise TypeError("This LayoutMap has no device_mesh, so there is nothing to check against.")
    # Iteration and length are those of a dict; looking up is not, and would match patterns.
    keys = list(layout_map)
    rules = tuple(
        Rule(key, tuple(_axes(a) for a in layout.axes), _same_mesh(layout.device_mesh, mesh))
        for key in keys
        for layout in [layout_map[key]]
    )
    return Rules(rules, mesh_of(mesh), FULLMATCH if _wants_full_match(layout_map) else SEARCH)


def current_layout_map() -> Any:
    """Return the LayoutMap of the distribution that Keras has been given, or None."""
    import keras

    return getattr(keras.distribution.distribution(), "_layout_map", None)


def _wants_full_match(layout_map: Any) -> bool:
    """Ask a LayoutMap like this one; versions are numbers, this is what happens."""
    probe = type(layout_map)(layout_map.device_mesh)
    probe["b"] = (None,)
    return probe["abc"] is None


def _read_tf_keras(layout_map: Any) -> Rules:
    layouts = {key: layout_map[key] for key in layout_map}
    meshes = [layout.mesh for layout in layouts.values()]
    mesh = layout_map.get_default_mesh() or (meshes[0] if meshes else None)
    if mesh is None:
        raise TypeError("This LayoutMap has neither a mesh nor rules.")
    view = mesh_of(mesh)
    rules = tuple(
        Rule(
            key,
            tuple(() if axis == "unsharded" else (axis,) for axis in layout.sharding_specs),
            mesh_of(layout.mesh) == view,
        )
        for key, layout in layouts.items()
    )
    return Rules(rules, view, MATCH)


def _same_mesh(one: Any, other: Any) -> bool:
    return one is other or mesh_of(one) == mesh_of(other)


def _axes(entry: Any) -> tuple[str, ...]:
    if entry is None:
        return ()
    return tuple(entry) if isinstance(entry, (tuple, list)) else (entry,)


def _name(variable: Any) -> str:
    name = getattr(variable, "path", None) or getattr(variable, "name", None)
    return re.sub(r":\d+$", "", str(name)) if name else type(variable).__name__


def is_keras(model: Any) -> bool:
    """Keras on PyTorch makes modules of its layers, with other names for their variables."""
    return any(base.__module__.startswith("keras.") for base in type(model).__mro__)


def _is_tf_keras(model: Any) -> bool:
    return any(base.__module__.startswith("tf_keras.") for base in type(model).__mro__)


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
