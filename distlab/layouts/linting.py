"""Find the rules of a LayoutMap that do not do what they look like: one check for each way."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from html import escape
from typing import Any

from distlab.layouts.guards import batch_not_first, untied
from distlab.layouts.rules import (
    FULLMATCH,
    MATCH,
    SEARCH,
    Rule,
    Rules,
    current_layout_map,
    read_rules,
)
from distlab.layouts.variables import Variable, is_module, output_paths, variables_of
from distlab.layouts.view import split
from distlab.layouts.words import bytes_text
from distlab.tables import aligned, html_table

_ERROR, _WARNING = "error", "warning"


class LayoutError(ValueError):
    """A model's layouts are not what its rules say. Its text is the report."""


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong, or probably not what was meant.

    Attributes:
        severity: `"error"` or `"warning"`.
        kind: `"unmatched"`, `"version"`, `"ambiguous"`, `"shadowed"`, `"rank"`, `"indivisible"`,
            `"mesh"`, `"not-applied"`, `"replicated"`, `"unused-axis"` or `"untied"`.
        message: What, and what to do about it.
        rule: The key of the rule it is about, or an empty string.
        paths: The variables it is about.
    """

    severity: str
    kind: str
    message: str
    rule: str = ""
    paths: tuple[str, ...] = ()


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
        return f"{self._summary}\n{aligned(self._cells())}" if self.findings else self._summary

    def _repr_html_(self) -> str:
        table = html_table(("severity", "kind", "what"), self._cells()) if self.findings else ""
        return f"<p>{escape(self._summary)}</p>{table}"


def lint(
    model: Any, layout_map: Any = None, *, large: int = 2**20, batch_axis: str | None = None
) -> Report:
    """Check a model against the rules that should lay it out.

    Works on a model that was built under its rules, and, to try rules out, on one that was built
    without any distribution.

    Args:
        model: A built Keras or tf_keras model; or a PyTorch module after `parallelize_module`, of
            which only weights that are tied no more are found.
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
    variables = list({variable.path: variable for variable in variables_of(model)}.values())
    if layout_map is None and is_module(model):
        found = tuple(Finding(_ERROR, *each) for each in untied(model))
        return Report(found, f"{len(variables)} parameters and buffers")
    if layout_map is None:
        layout_map, _ = current_layout_map()
        if layout_map is None:
            raise TypeError(
                "No LayoutMap was given, and Keras has no ModelParallel set: write "
                "lint(model, layout_map)."
            )
    rules = read_rules(layout_map)
    current, its_axis = (None, None) if rules.how == MATCH else current_layout_map()
    in_use = current is layout_map
    batch = batch_axis or (its_axis if in_use else None) or rules.mesh.names[0]
    rules.mesh.size(batch)
    paths = [*(variable.path for variable in variables), *output_paths(model)]
    findings = [
        *(Finding(_ERROR, *each) for each in batch_not_first(rules, batch)),
        *_that_match_otherwise(rules, paths),
        *_that_do_not_fit(rules, variables),
        *_not_applied(rules, variables, in_use),
    ]
    findings += _replicated(rules, variables, batch, large, findings)
    findings += _unused_axes(rules, paths, batch, findings)
    about = (
        f"{len(variables)} variable{'s' * (len(variables) != 1)}, "
        f"{len(rules.rules)} rule{'s' * (len(rules.rules) != 1)}, mesh {rules.mesh}"
    )
    return Report(tuple(sorted(findings, key=lambda f: f.severity != _ERROR)), about)


def check_layouts(
    model: Any, layout_map: Any = None, *, large: int = 2**20, batch_axis: str | None = None
) -> None:
    """Raise an error if `lint` finds something; for use in tests and before a long training.

    The arguments are those of `lint`.

    Raises:
        LayoutError: With the report, if there is anything to report.
    """
    report = lint(model, layout_map, large=large, batch_axis=batch_axis)
    if report.findings:
        raise LayoutError(repr(report))


def _that_match_otherwise(rules: Rules, paths: Sequence[str]) -> Iterator[Finding]:
    """Rules that match nothing, or not the same in every version, or too much."""
    for rule in rules.rules:
        if rules.how != MATCH and (finding := _version(rules, rule, paths)):
            yield finding
            continue
        found = rules.matched(rule.key, paths)
        if not found:
            message = f"{rule.key!r} matches nothing, so it does nothing."
            yield Finding(_ERROR, "unmatched", message + _nearest(rule.key, paths), rule.key)
        elif rules.how == MATCH and not any(rule in rules.matching(path) for path in found):
            first = rules.matching(found[0])[0].key
            message = f"{rule.key!r} does nothing: {first!r} comes before it and matches as well."
            yield Finding(_ERROR, "shadowed", message, rule.key, tuple(found))
    for path in paths:
        claims = [rule.key for rule in rules.matching(path)]
        if len(claims) > 1:
            message = f"{path!r} matches several rules, which Keras refuses: {_some(claims)}."
            yield Finding(_ERROR, "ambiguous", message, claims[0], (path,))


def _version(rules: Rules, rule: Rule, paths: Sequence[str]) -> Finding | None:
    def both(key: str) -> tuple[list[str], list[str]]:
        return rules.matched(key, paths, FULLMATCH), rules.matched(key, paths, SEARCH)

    key = rule.key
    full, part = both(key)
    if full == part:
        return None
    wanted = full or part
    message = (
        f"{key!r} matches {_some(full) or 'nothing'} under Keras 3.14 and later (re.fullmatch), "
        f"but {_some(part)} under Keras up to 3.13 (re.search)."
    )
    rewrites = (f".*{key}", f"{key}.*", f".*{key}.*", f"^{key}$", f"^(.*/)?{key}$", f"^.*{key}$")
    for better in rewrites:
        if both(better) == (wanted, wanted):
            message += f" Write {better!r}, which matches {_some(wanted)} under both."
            break
    others = tuple(path for path in part if path not in full)
    return Finding(_WARNING if full else _ERROR, "version", message, key, others)


def _nearest(key: str, paths: Sequence[str]) -> str:
    """A sentence with the paths most like a rule that matches none."""
    plain = key.replace(".*", "").replace("\\", "").strip("^$()?/")
    names = {path: path for path in paths}
    for path in paths:  # `a/b/c` ends in `b/c`, which is what a rule tends to name
        parts = path.split("/")
        names |= {"/".join(parts[i:]): path for i in range(1, len(parts) - 1)}
    close = list(dict.fromkeys(names[name] for name in get_close_matches(plain, names, 6, 0.6)))
    return f" Nearest: {_some(close)}." if close else f" There are: {_some(paths)}."


def _some(names: Sequence[str]) -> str:
    """Names in quotes, the first three of many."""
    shown = ", ".join(map(repr, names[:3]))
    return f"{shown} and {len(names) - 3} more" if len(names) > 3 else shown


def _that_do_not_fit(rules: Rules, variables: Sequence[Variable]) -> Iterator[Finding]:
    """Rules that do not fit the mesh, or the variables they match."""
    for rule in rules.rules:
        if not rule.on_mesh:
            message = f"The layout of {rule.key!r} is for another mesh than the map's."
            yield Finding(_ERROR, "mesh", message, rule.key)
    for variable in variables:
        for rule in rules.matching(variable.path)[:1]:
            path, shape, number = variable.path, variable.shape, len(rule.axes)
            fails = number > len(shape) or (number < len(shape) and rules.how == MATCH)
            if number != len(shape):
                message = (
                    f"{rule.key!r} names {number} dimension{'s' * (number != 1)}, but "
                    f"{path!r} of shape {list(shape)} has {len(shape)}."
                )
                if not fails:
                    message += " The rest are not sharded; write None for them to say so."
                yield Finding(_ERROR if fails else _WARNING, "rank", message, rule.key, (path,))
            if fails:
                continue
            try:
                split(shape, rules.mesh, rule.axes, name=path)
            except ValueError as error:
                message = f"{rule.key!r} does not fit. {error}"
                yield Finding(_ERROR, "indivisible", message, rule.key, (path,))


def _not_applied(rules: Rules, variables: Sequence[Variable], in_use: bool) -> Iterator[Finding]:
    """Variables that are laid out otherwise than the rules say.

    `in_use` is whether the rules are those of the distribution that is set now. If they are not,
    a model on a single device is one to try them out on.
    """
    if not any(v.layout and len(v.layout.bounds) > 1 for v in variables):
        if in_use and len(rules.mesh.devices) > 1:
            message = (
                "The model is on one device, not on the mesh: it was built before "
                "set_distribution, which lays out only what is built after it."
            )
            yield Finding(_ERROR, "not-applied", message, paths=tuple(v.path for v in variables))
        return
    differ = []
    for variable in variables:
        claims = rules.matching(variable.path)
        try:
            wanted = split(variable.shape, rules.mesh, claims[0].axes if claims else ())
        except ValueError:
            continue  # said already
        if variable.layout is None or variable.layout.slices != wanted.slices:
            differ.append(variable.path)
    if differ:
        message = (
            f"{_some(differ)} {'is' if len(differ) == 1 else 'are'} laid out otherwise than this "
            "map says: built under another map or mesh, or before this rule was added."
        )
        yield Finding(_ERROR, "not-applied", message, paths=tuple(differ))


def _replicated(
    rules: Rules, variables: Sequence[Variable], batch: str, large: int, findings: list[Finding]
) -> Iterator[Finding]:
    """Big variables that no rule splits, though the mesh has an axis for it."""
    axes = [name for name, size in rules.mesh.axes if size > 1 and name != batch]
    said = {path for f in findings if f.kind == "version" for path in f.paths}
    for variable in variables if axes else ():
        path, size = variable.path, variable.nbytes
        if size >= large and path not in said and not rules.matching(path):
            message = (
                f"{path!r} ({bytes_text(size)}) is replicated on every device: no rule shards it "
                f"over {' or '.join(map(repr, axes))}. A rule of None for each dimension says that "
                "this is meant."
            )
            yield Finding(_WARNING, "replicated", message, paths=(path,))


def _unused_axes(
    rules: Rules, paths: Sequence[str], batch: str, findings: list[Finding]
) -> Iterator[Finding]:
    """Axes of the mesh that split nothing."""
    # An axis that only a rule without effect names has been reported with that rule.
    idle = {f.rule for f in findings if f.kind in ("unmatched", "version", "shadowed")}
    used = {batch}
    for rule in rules.rules:
        if rule.key in idle or rules.matched(rule.key, paths):
            used.update(axis for axes in rule.axes for axis in axes)
    for name, size in rules.mesh.axes:
        if size > 1 and name not in used:
            what = f"{size} devices along it do the same work."
            yield Finding(_WARNING, "unused-axis", f"Nothing is sharded over axis {name!r}: {what}")
