"""Find the rules of a LayoutMap that do not do what they look like."""

from dataclasses import dataclass
from html import escape
from typing import Any

from distlab.layouts.findings import (
    ERROR,
    Finding,
    check_applied,
    check_axes,
    check_matching,
    check_replicated,
    check_shapes,
)
from distlab.layouts.no_layout import PlainTensorError
from distlab.layouts.readers import layout_of
from distlab.layouts.rules import (
    MATCH,
    current_layout_map,
    named_variables,
    output_paths,
    read_rules,
)
from distlab.layouts.view import Layout
from distlab.tables import aligned, html_table


class LayoutError(ValueError):
    """A model's layouts are not what its rules say. Its text is the report."""


@dataclass(frozen=True)
class Report:
    """What `lint` found. Empty, and so false in an `if`, when all is well."""

    findings: tuple[Finding, ...]
    about: str

    def __len__(self) -> int:
        return len(self.findings)

    def kinds(self) -> list[str]:
        """Return the kinds of the findings, for use in tests."""
        return [finding.kind for finding in self.findings]

    def _cells(self) -> list[tuple[str, ...]]:
        return [(f.severity, f.kind, f.message) for f in self.findings]

    @property
    def _summary(self) -> str:
        number = len(self.findings)
        return f"{number or 'no'} finding{'s' * (number != 1)}: {self.about}"

    def __repr__(self) -> str:
        if not self.findings:
            return self._summary
        return f"{self._summary}\n{aligned(self._cells())}"

    def _repr_html_(self) -> str:
        summary = f"<p>{escape(self._summary)}</p>"
        if not self.findings:
            return summary
        heads = ("severity", "kind", "what")
        return f"{summary}{html_table(heads, self._cells())}"


def lint(
    model: Any,
    layout_map: Any = None,
    *,
    large: int = 2**20,
    batch_axis: str | None = None,
) -> Report:
    """Check a model against the rules that should lay it out.

    Works on a model that was built under its rules, and, to try rules out, on one that was built
    without any distribution.

    Args:
        model: A built Keras or tf_keras model.
        layout_map: Its LayoutMap; the default for Keras is that of the distribution that is set.
        large: From how many bytes on a variable should not stay whole on every device.
        batch_axis: The mesh axis that splits the batch. The default is Keras's: what the
            distribution says, or else the mesh's first axis.

    Returns:
        The report. Findings are errors where something fails or is ignored, and warnings where
        it works but is hardly meant.

    Raises:
        TypeError: If there are no rules, or they are not of a kind known here.
        ValueError: If the model has no variables yet, or the batch axis is not in the mesh.

    Example:
        A rule for a layer of a `Sequential` model that leaves the model's name out::

            >>> import keras  # on JAX, with eight devices
            >>> from keras.distribution import DeviceMesh, LayoutMap, list_devices
            >>> layout_map = LayoutMap(DeviceMesh((2, 4), ["data", "model"], list_devices()[:8]))
            >>> layout_map["d1/kernel"] = (None, "model")
            >>> model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4, name="d1")])
            >>> lint(model, layout_map).kinds()
            ['version']
    """
    variables = dict(named_variables(model))
    if layout_map is None:
        layout_map = current_layout_map()
        if layout_map is None:
            raise TypeError(
                "No LayoutMap was given, and Keras has no ModelParallel set: write "
                "lint(model, layout_map)."
            )
    rules = read_rules(layout_map)
    shapes = {path: tuple(int(n) for n in v.shape) for path, v in variables.items()}
    batch = batch_axis or _batch_axis(layout_map) or (*rules.mesh.names, "")[0]
    rules.mesh.size(batch)
    actual = {path: _actual(variable) for path, variable in variables.items()}
    outputs = output_paths(model)
    in_use = rules.how != MATCH and current_layout_map() is layout_map
    findings = [
        *check_matching(rules, list(shapes), outputs),
        *check_shapes(rules, shapes),
        *check_applied(rules, shapes, actual, in_use),
    ]
    findings += check_replicated(rules, variables, batch, large, findings)
    findings += check_axes(rules, [*shapes, *outputs], batch, findings)
    about = (
        f"{len(variables)} variable{'s' * (len(variables) != 1)}, "
        f"{len(rules.rules)} rule{'s' * (len(rules.rules) != 1)}, mesh {rules.mesh}"
    )
    return _report(findings, about)


def check_layouts(
    model: Any,
    layout_map: Any = None,
    *,
    strict: bool = True,
    large: int = 2**20,
    batch_axis: str | None = None,
) -> None:
    """Raise an error if `lint` finds something; for use in tests and before a long training.

    Args:
        model: As for `lint`.
        layout_map: As for `lint`.
        strict: Whether warnings count too.
        large: As for `lint`.
        batch_axis: As for `lint`.

    Raises:
        LayoutError: With the report, if there is anything to report.
    """
    report = lint(model, layout_map, large=large, batch_axis=batch_axis)
    if any(strict or finding.severity == ERROR for finding in report.findings):
        raise LayoutError(repr(report))


def _report(findings: list[Finding], about: str) -> Report:
    return Report(tuple(sorted(findings, key=lambda f: f.severity != ERROR)), about)


def _batch_axis(layout_map: Any) -> str | None:
    """The batch axis of the distribution that uses this map, if it is set."""
    if hasattr(layout_map, "get_default_mesh"):
        return None
    import keras

    distribution = keras.distribution.distribution()
    if getattr(distribution, "_layout_map", None) is not layout_map:
        return None
    name = distribution.batch_dim_name
    return None if name is None else str(name)


def _actual(variable: Any) -> Layout | None:
    try:
        return layout_of(variable)
    except PlainTensorError:
        return None
