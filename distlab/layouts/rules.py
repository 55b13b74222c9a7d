"""The rules of a LayoutMap, and which paths they match."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from distlab.layouts.jax_reader import axes_of
from distlab.layouts.readers import mesh_of
from distlab.layouts.tensorflow_reader import tensorflow_axes
from distlab.layouts.view import Layout, Mesh, split

FULLMATCH, SEARCH, MATCH = "fullmatch", "search", "match"  # functions of `re`


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

    def matching(self, path: str) -> list[Rule]:
        """Return the rules that claim `path`: a rule that equals it, or else all that match."""
        exact = [rule for rule in self.rules if rule.key == path]
        if exact:
            return exact
        found = [rule for rule in self.rules if self.matched(rule.key, [path])]
        return found[:1] if self.how == MATCH else found

    def wanted(self, path: str, shape: Sequence[int]) -> Layout | None:
        """Return the layout that `path` should have; None if its rule does not fit its shape."""
        claims = self.matching(path)
        try:
            return split(shape, self.mesh, claims[0].axes if claims else ())
        except ValueError:
            return None

    def matched(self, key: str, paths: Iterable[str], how: str | None = None) -> list[str]:
        """Return those of `paths` that `key` matches, whatever other rules do."""
        match = getattr(re.compile(key), how or self.how)
        return [path for path in paths if path == key or match(path)]


def read_rules(layout_map: Any) -> Rules:
    """Read a Keras or tf_keras `LayoutMap`.

    Raises:
        TypeError: If it is not one, or has no mesh.
    """
    is_tf_keras = hasattr(layout_map, "get_default_mesh")
    if not is_tf_keras and not (
        isinstance(layout_map, Mapping) and hasattr(layout_map, "device_mesh")
    ):
        raise TypeError(
            f"Expected a LayoutMap of Keras or tf_keras, not {type(layout_map).__name__}."
        )
    # Iteration and length are those of a dict; looking up is not, and would match patterns.
    layouts = {key: layout_map[key] for key in list(layout_map)}
    mesh = layout_map.get_default_mesh() if is_tf_keras else layout_map.device_mesh
    if mesh is None:
        what = "mesh" if is_tf_keras else "device_mesh"
        raise TypeError(f"This LayoutMap has no {what}, so there is nothing to check against.")
    view = mesh_of(mesh)
    rules = []
    for key, each in layouts.items():
        axes = tensorflow_axes(each) if is_tf_keras else tuple(map(axes_of, each.axes))
        own = each.mesh if is_tf_keras else each.device_mesh
        rules.append(Rule(key, axes, own is mesh or mesh_of(own) == view))
    return Rules(tuple(rules), view, MATCH if is_tf_keras else _how_keras_matches(layout_map))


def _how_keras_matches(layout_map: Any) -> str:
    """Ask a LayoutMap like this one; versions are numbers, this is what happens."""
    probe = type(layout_map)(layout_map.device_mesh)
    probe["b"] = (None,)
    return FULLMATCH if probe["abc"] is None else SEARCH


def current_layout_map() -> tuple[Any, str | None]:
    """Return the LayoutMap of the distribution that Keras has been given, and its batch axis."""
    import keras

    distribution = keras.distribution.distribution()
    axis = getattr(distribution, "batch_dim_name", None)
    return getattr(distribution, "_layout_map", None), axis
