"""Find the rules of a LayoutMap that do not do what they look like: one check for each way."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from distlab.errors import brief
from distlab.layouts.findings import ERROR, WARNING, Finding, LayoutError, Report, some
from distlab.layouts.guards import batch_not_first, untied
from distlab.layouts.no_layout import LostValueError
from distlab.layouts.proposals import Where, key_for
from distlab.layouts.replication import companions, replicated
from distlab.layouts.rules import (
    FULLMATCH,
    MATCH,
    SEARCH,
    Rule,
    Rules,
    current_layout_map,
    read_rules,
)
from distlab.layouts.typos import nearest
from distlab.layouts.variables import (
    Variable,
    is_module,
    model_names,
    output_paths,
    variables_of,
)
from distlab.layouts.view import split


@brief
def lint(model: Any, layout_map: Any = None) -> Report:
    """Check a model against the rules that should lay it out.

    Works on a model that was built under its rules, to try rules out on one that was built
    without any distribution, and after a training step that failed.

    Args:
        model: A built Keras or tf_keras model; or a PyTorch module after `parallelize_module`, of
            which only weights that are tied no more are found.
        layout_map: Its LayoutMap; the default for Keras is that of the distribution that is set.
            Where the distribution does not say which mesh axis splits the batch, it is the first.

    Returns:
        The report. Findings are errors where something fails or is ignored, and warnings where
        it works but is hardly meant.

    Raises:
        TypeError: If there are no rules, or they are not of a kind known here.
        ValueError: If the model has no variables yet.

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
    if type(model).__name__ == "LayoutMap":
        raise TypeError("The model comes first: lint(model, layout_map).")
    variables = variables_of(model, lost=True)
    if layout_map is None and is_module(model):
        found = tuple(Finding(ERROR, *each) for each in untied(model))
        return Report(found, f"{len(variables)} parameters and buffers")
    if layout_map is None:
        layout_map, _ = current_layout_map()
        if layout_map is None:
            raise TypeError(
                "No LayoutMap was given, and Keras has no ModelParallel set: write "
                "lint(model, layout_map)."
            )
    rules = read_rules(layout_map)
    current, its_axis, backend = None, None, "jax"
    if rules.how != MATCH:
        import keras

        current, its_axis = current_layout_map()
        backend = keras.backend.backend()
    in_use = current is layout_map
    batch = (its_axis if in_use else None) or rules.mesh.names[0]
    paths = [*(variable.path for variable in variables), *output_paths(model)]
    where = Where(rules, paths, model_names(model))
    findings = [
        *(Finding(ERROR, *each) for each in batch_not_first(rules, batch)),
        *_that_match_otherwise(where, variables),
        *_that_do_not_fit(rules, variables),
        *_not_applied(rules, variables, in_use, backend),
        *companions(where, variables),
    ]
    if gone := [variable.path for variable in variables if variable.lost]:
        findings.insert(0, Finding(ERROR, "lost", str(LostValueError(gone)), paths=tuple(gone)))
    with_rules = [f for f in findings if f.kind in ("unmatched", "version", "companion")]
    said = {path for f in with_rules for path in f.paths}
    axes = [name for name, size in rules.mesh.axes if size > 1 and name != batch]
    findings += replicated(where, variables, axes, said)
    findings += _unused_axes(rules, paths, batch, findings)
    about = (
        f"{len(variables)} variable{'s' * (len(variables) != 1)}, "
        f"{len(rules.rules)} rule{'s' * (len(rules.rules) != 1)}, mesh {rules.mesh}"
    )
    findings = list(dict.fromkeys(findings))  # a loaded model may have a path twice
    return Report(tuple(sorted(findings, key=lambda f: f.severity != ERROR)), about)


@brief
def check_layouts(model: Any, layout_map: Any = None) -> None:
    """Raise an error if `lint` finds something; for use in tests and before a long training.

    The arguments are those of `lint`.

    Raises:
        LayoutError: With the report, if there is anything to report.
    """
    report = lint(model, layout_map)
    if report.findings:
        raise LayoutError(repr(report))


def _that_match_otherwise(where: Where, variables: Sequence[Variable]) -> Iterator[Finding]:
    """Rules that match nothing, or not the same in every version, or too much."""
    rules, paths, _ = where
    for rule in rules.rules:
        if rules.how != MATCH and (finding := _version(rules, rule, paths)):
            yield finding
            continue
        found = rules.matched(rule.key, paths)
        if not found:
            message = f"{rule.key!r} matches nothing, so it does nothing."
            text = _without_name(where, rule.key)
            text, meant = (text, ()) if text else nearest(where, rule, variables)
            yield Finding(ERROR, "unmatched", message + text, rule.key, meant)
        elif rules.how == MATCH and not any(rule in rules.matching(path) for path in found):
            first = rules.matching(found[0])[0].key
            message = f"{rule.key!r} does nothing: {first!r} comes before it and matches as well."
            yield Finding(ERROR, "shadowed", message, rule.key, tuple(found))
        elif said := _without_name(where, rule.key):
            message = f"{rule.key!r} begins with the name of a model.{said}"
            yield Finding(WARNING, "model-name", message, rule.key, tuple(found))
    for path in paths:
        claims = [rule.key for rule in rules.matching(path)]
        if len(claims) > 1:
            message = f"{path!r} matches several rules, which Keras refuses: {some(claims)}."
            yield Finding(ERROR, "ambiguous", message, claims[0], (path,))


def _version(rules: Rules, rule: Rule, paths: Sequence[str]) -> Finding | None:
    def both(key: str) -> tuple[list[str], list[str]]:
        return rules.matched(key, paths, FULLMATCH), rules.matched(key, paths, SEARCH)

    key = rule.key
    full, part = both(key)
    if full == part:
        return None
    wanted = full or part
    before = f"{some(part)} under Keras up to 3.13 (re.search)."
    message = f"{key!r} matches nothing: a key has to match the whole path (re.fullmatch)."
    if full:
        message = (
            f"{key!r} matches {some(full)} under Keras 3.14 and later (re.fullmatch), but {before}"
        )
    rewrites = (f".*{key}", f"{key}.*", f".*{key}.*", f"^{key}$", f"^(.*/)?{key}$", f"^.*{key}$")
    for better in rewrites:
        if both(better) == (wanted, wanted):
            message += f" Write {better!r}, which matches {some(wanted)}."
            break
    if not full:
        message += f" It matched {before}"
    others = tuple(path for path in part if path not in full)
    return Finding(WARNING if full else ERROR, "version", message, key, others)


def _without_name(where: Where, key: str) -> str:
    """Sentences about a key that wants a model's name, which the paths of a loaded model lack."""
    rules, paths, names = where
    named = re.match(rf"((?:\^|\.\*|\(\.\*/\)\?)*)({'|'.join(map(re.escape, names))})/", key)
    stem = key[named.end() :].removesuffix("$") if named and names else ""
    if not named or not stem:
        return ""
    wanted = rules.matched(key, paths) or rules.matched(f"(.*/)?{stem}", paths, FULLMATCH)
    bare = [path.removeprefix(f"{named[2]}/") for path in wanted]
    if not bare or rules.matched(key, bare):
        return ""
    text = (
        f" The paths of a model that load_model makes lack the name {named[2]!r}: {some(bare)}. "
        "There the rule is ignored."
    )
    better = key_for(where, wanted, stem)
    if better and rules.matched(better, bare) == bare:
        return f"{text} Write {better!r}, which matches both."
    return f"{text} No simple rule tells them apart there: give the layers names of their own."


def _that_do_not_fit(rules: Rules, variables: Sequence[Variable]) -> Iterator[Finding]:
    """Rules that do not fit the mesh, or the variables they match."""
    for rule in rules.rules:
        if not rule.on_mesh:
            message = f"The layout of {rule.key!r} is for another mesh than the map's."
            yield Finding(ERROR, "mesh", message, rule.key)
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
                yield Finding(ERROR if fails else WARNING, "rank", message, rule.key, (path,))
            if fails:
                continue
            try:
                split(shape, rules.mesh, rule.axes, name=path)
            except ValueError as error:
                message = f"{rule.key!r} does not fit. {error}"
                yield Finding(ERROR, "indivisible", message, rule.key, (path,))


def _not_applied(
    rules: Rules, variables: Sequence[Variable], in_use: bool, backend: str
) -> Iterator[Finding]:
    """Variables that are laid out otherwise than the rules say.

    `in_use` is whether the rules are those of the distribution that is set now. If they are not,
    a model on a single device is one to try them out on.
    """
    if len(rules.mesh.devices) == 1:
        return
    if not any(v.layout and len(v.layout.bounds) > 1 for v in variables):
        message = ""
        if backend != "jax":
            message = (
                f"The model is on one device, not on the mesh: Keras runs on {backend}, where "
                "keras.distribution does nothing and says nothing (Keras 3.15.1). Set "
                'os.environ["KERAS_BACKEND"] = "jax" before Keras is imported.'
            )
        elif in_use:
            message = (
                "The model is on one device, not on the mesh: it was built before "
                "set_distribution, which lays out only what is built after it."
            )
        if message:
            yield Finding(ERROR, "not-applied", message, paths=tuple(v.path for v in variables))
        return
    differ, alone, unruled = [], [], 0
    for variable in variables:
        claims = rules.matching(variable.path)
        if variable.layout is None or len(variable.layout.bounds) == 1:
            if claims:
                alone.append(variable.path)
            unruled += not claims
            continue
        wanted = rules.wanted(variable.path, variable.shape)  # None has been said already
        if wanted and variable.layout.slices != wanted.slices:
            differ.append(variable.path)
    if alone or unruled:
        rest = f"{unruled} variable{'s' * (unruled != 1)} that no rule matches" * (unruled > 0)
        them = " and ".join(filter(None, (some(alone), rest)))
        message = (
            f"{them} {'is' if len(alone) + unruled == 1 else 'are'} on one device, built before "
            "any distribution, while the rest of the model is on the mesh: set_distribution lays "
            "out only what is built after it, and a training step takes no mix. Build all of the "
            "model after it."
        )
        yield Finding(ERROR, "not-applied", message, paths=tuple(alone))
    if differ:
        message = (
            f"{some(differ)} {'is' if len(differ) == 1 else 'are'} laid out otherwise than this "
            "map says: built under another map or mesh, or before this rule was added."
        )
        yield Finding(ERROR, "not-applied", message, paths=tuple(differ))


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
            yield Finding(WARNING, "unused-axis", f"Nothing is sharded over axis {name!r}: {what}")
