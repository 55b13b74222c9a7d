"""The checks behind `distlab.layouts.lint`, one for each way in which rules go wrong."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from distlab.layouts.rules import FULLMATCH, MATCH, SEARCH, Rule, Rules
from distlab.layouts.view import Layout, itemsize, split
from distlab.layouts.words import bytes_text

ERROR, WARNING = "error", "warning"
_VERSIONS = {FULLMATCH: "Keras 3.14 and later", SEARCH: "Keras up to 3.13"}


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong, or probably not what was meant.

    Attributes:
        severity: `"error"` or `"warning"`.
        kind: `"unmatched"`, `"version"`, `"ambiguous"`, `"shadowed"`, `"rank"`, `"indivisible"`,
            `"mesh"`, `"unsupported"`, `"not-applied"`, `"replicated"` or `"unused-axis"`.
        message: What, and what to do about it.
        rule: The key of the rule it is about, or an empty string.
        paths: The variables it is about.
    """

    severity: str
    kind: str
    message: str
    rule: str = ""
    paths: tuple[str, ...] = ()


def check_matching(rules: Rules, paths: Sequence[str], outputs: Sequence[str]) -> list[Finding]:
    """Find rules that match nothing, or not the same in every version, or too much."""
    findings = []
    everything = [*paths, *outputs]
    for rule in rules.rules:
        found = rules.matched(rule.key, everything)
        other = {FULLMATCH: SEARCH, SEARCH: FULLMATCH}.get(rules.how)
        if other:
            full = rules.matched(rule.key, everything, FULLMATCH)
            part = rules.matched(rule.key, everything, SEARCH)
            if full != part:
                findings.append(_version_finding(rules, rule, full, part, everything))
                continue
        if not found:
            message = f"{rule.key!r} matches nothing, so it does nothing."
            findings.append(
                Finding(ERROR, "unmatched", message + nearest(rule.key, everything), rule.key)
            )
        elif rules.how == MATCH and not any(rule in rules.matching(path) for path in found):
            first = rules.matching(found[0])[0].key
            message = f"{rule.key!r} does nothing: {first!r} comes before it and matches as well."
            findings.append(Finding(ERROR, "shadowed", message, rule.key, tuple(found)))
    if rules.how != MATCH:
        for path in everything:
            claims = [rule.key for rule in rules.matching(path)]
            if len(claims) > 1:
                message = f"{path!r} matches several rules, which Keras refuses: {listed(claims)}."
                findings.append(Finding(ERROR, "ambiguous", message, claims[0], (path,)))
    return findings


def _version_finding(
    rules: Rules, rule: Rule, full: list[str], part: list[str], everything: Sequence[str]
) -> Finding:
    wanted = full or part
    new, old = _VERSIONS[FULLMATCH], _VERSIONS[SEARCH]
    message = (
        f"{rule.key!r} matches {listed(full) or 'nothing'} under {new} (re.fullmatch), "
        f"but {listed(part)} under {old} (re.search)."
    )
    for key in _rewrites(rule.key):
        if (
            wanted
            == rules.matched(key, everything, FULLMATCH)
            == rules.matched(key, everything, SEARCH)
        ):
            message += f" Write {key!r}, which matches {listed(wanted)} under both."
            break
    paths = tuple(path for path in part if path not in full)
    return Finding(WARNING if full else ERROR, "version", message, rule.key, paths)


def _rewrites(key: str) -> list[str]:
    return [f".*{key}", f"{key}.*", f".*{key}.*", f"^{key}$", f"^(.*/)?{key}$", f"^.*{key}$"]


def nearest(key: str, paths: Sequence[str]) -> str:
    """Return a sentence with the paths most like a rule that matches none."""
    plain = key.replace(".*", "").replace("\\", "").strip("^$()?/")
    names = {path: path for path in paths}
    names |= {part: path for path in paths for part in _tails(path)}
    close = list(dict.fromkeys(names[name] for name in get_close_matches(plain, names, 6, 0.6)))
    return f" Nearest: {listed(close)}." if close else f" There are: {listed(list(paths))}."


def _tails(path: str) -> list[str]:
    """`a/b/c` ends in `b/c`, which is what a rule tends to name."""
    parts = path.split("/")
    return ["/".join(parts[i:]) for i in range(1, len(parts) - 1)]


def listed(names: Sequence[str]) -> str:
    """Return some names in quotes, the first three of many."""
    shown = ", ".join(repr(name) for name in names[:3])
    return f"{shown} and {len(names) - 3} more" if len(names) > 3 else shown


def check_shapes(rules: Rules, shapes: dict[str, tuple[int, ...]]) -> list[Finding]:
    """Find rules that do not fit the variables they match."""
    findings = []
    for rule in rules.rules:
        if not rule.on_mesh:
            message = f"The layout of {rule.key!r} is for another mesh than the map's."
            findings.append(Finding(ERROR, "mesh", message, rule.key))
    for path, shape in shapes.items():
        for rule in rules.matching(path)[:1]:
            axes, rank = rule.axes, len(shape)
            named = (rule.key, (path,))
            if len(axes) != rank:
                fails = len(axes) > rank or rules.how == MATCH
                message = (
                    f"{rule.key!r} names {len(axes)} dimension{'s' * (len(axes) != 1)}, but "
                    f"{path!r} of shape {list(shape)} has {rank}."
                )
                if not fails:
                    message += " The rest are not sharded; write None for them to say so."
                findings.append(Finding(ERROR if fails else WARNING, "rank", message, *named))
                if fails:
                    continue
            try:
                split(shape, rules.mesh, axes, name=path)
            except ValueError as error:
                message = f"{rule.key!r} does not fit. {error}"
                findings.append(Finding(ERROR, "indivisible", message, *named))
    return findings


def check_applied(
    rules: Rules,
    shapes: dict[str, tuple[int, ...]],
    actual: dict[str, Layout | None],
    in_use: bool,
) -> list[Finding]:
    """Find variables that are laid out otherwise than the rules say.

    `in_use` is whether the rules are those of the distribution that is set now. If they are not,
    a model on a single device is one to try them out on.
    """
    spread = [path for path, layout in actual.items() if layout and len(layout.bounds) > 1]
    if not spread:
        if not in_use or len(rules.mesh.devices) == 1:
            return []
        message = (
            "The model is on one device, not on the mesh: it was built before set_distribution, "
            "which lays out only what is built after it."
        )
        return [Finding(ERROR, "not-applied", message, paths=tuple(shapes))]
    differ = []
    for path, layout in actual.items():
        claims = rules.matching(path)
        try:
            wanted = split(shapes[path], rules.mesh, claims[0].axes if claims else ())
        except ValueError:
            continue  # said already
        if layout is None or layout.slices != wanted.slices:
            differ.append(path)
    if not differ:
        return []
    message = (
        f"{listed(differ)} {'is' if len(differ) == 1 else 'are'} laid out otherwise than this map "
        "says: built under another map or mesh, or before this rule was added."
    )
    return [Finding(ERROR, "not-applied", message, paths=tuple(differ))]


def check_replicated(
    rules: Rules,
    variables: dict[str, Any],
    batch: str,
    large: int,
    findings: Sequence[Finding],
) -> list[Finding]:
    """Find big variables that no rule splits, though the mesh has an axis for it."""
    axes = [name for name, size in rules.mesh.axes if size > 1 and name != batch]
    said = {path for f in findings if f.kind == "version" for path in f.paths}
    found = []
    for path, variable in variables.items():
        if not axes or path in said or rules.matching(path):
            continue
        size = size_of(variable)
        if size >= large:
            message = (
                f"{path!r} ({bytes_text(size)}) is replicated on every device: no rule shards it "
                f"over {' or '.join(map(repr, axes))}. A rule of None for each dimension says that "
                "this is meant."
            )
            found.append(Finding(WARNING, "replicated", message, paths=(path,)))
    return found


def size_of(variable: Any) -> int:
    """Return the bytes of a whole variable of any framework; 0 if its type is not known."""
    dtype = variable.dtype
    name = str(getattr(dtype, "name", dtype)).removeprefix("torch.")
    return (itemsize(name) or 0) * math.prod(int(n) for n in variable.shape)


def check_axes(
    rules: Rules, paths: Sequence[str], batch: str, findings: Sequence[Finding]
) -> list[Finding]:
    """Find axes of the mesh that split nothing."""
    # An axis that only a rule without effect names has been reported with that rule.
    idle = {f.rule for f in findings if f.kind in ("unmatched", "version", "shadowed")}
    used = {batch}
    for rule in rules.rules:
        if rule.key in idle or rules.matched(rule.key, paths):
            used.update(axis for axes in rule.axes for axis in axes)
    return [
        Finding(
            WARNING,
            "unused-axis",
            f"Nothing is sharded over axis {name!r}: {size} devices along it do the same work.",
        )
        for name, size in rules.mesh.axes
        if size > 1 and name not in used
    ]
