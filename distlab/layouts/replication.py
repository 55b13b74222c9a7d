"""What stays whole on every device though the mesh could shard it: by share, by size, by name."""

import re
from collections.abc import Iterator, Sequence

from distlab.layouts.findings import WARNING, Finding, some
from distlab.layouts.proposals import Where, axes_that_fit, form_of, rule_for
from distlab.layouts.rules import Rules
from distlab.layouts.variables import Variable
from distlab.layouts.words import bytes_text

MOST = 0.6
"""The share of a model's bytes from which on it is hardly meant that no rule claims them."""
LARGE = 2**20
"""Bytes from which on that is so for a variable, whatever its share."""


def replicated(
    where: Where, variables: Sequence[Variable], axes: Sequence[str], said: set[str]
) -> Iterator[Finding]:
    """Variables that no rule claims: where they are most of the bytes, or each is large.

    They are to be sharded over the axes. `said` has the paths that another finding is about.
    """
    if not axes:
        return
    rules = where.rules
    bare = [v for v in variables if v.path not in said and not rules.matching(v.path)]
    groups: dict[tuple[str, tuple[int, ...]], list[Variable]] = {}
    for variable in bare:
        groups.setdefault((form_of(variable.path), variable.shape), []).append(variable)
    by_size = sorted(groups.values(), key=lambda group: -_bytes(group))
    whole, every = _bytes(bare), _bytes(variables)
    most = [group for group in by_size[:3] if 20 * _bytes(group) >= whole]
    most = most if whole > MOST * every else []
    big = [group for group in by_size if group[0].nbytes >= LARGE and group not in most]
    over = " or ".join(map(repr, axes))
    for listed in filter(None, [most, *([group] for group in big)]):
        one = len(listed) == len(listed[0]) == 1
        message = (
            f"{', '.join(map(_sized, listed))} {'is' if one else 'are'} replicated on every "
            f"device: no rule shards {'it' if one else 'them'} over {over}. "
        )
        if listed is most:
            message += (
                f"In all {bytes_text(whole)} are replicated like that, {100 * whole // every} % "
                f"of the model's {bytes_text(every)}. "
            )
        message += "(If it should be: a rule that has None for each dimension says so.)"
        message += _write([_sharded(where, group, axes) for group in listed])
        about = tuple(variable.path for group in listed for variable in group)
        yield Finding(WARNING, "replicated", message, paths=about)
    yield from _siblings(where, variables, axes, by_size, [*most, *big])


def _siblings(
    where: Where,
    variables: Sequence[Variable],
    axes: Sequence[str],
    bare: Sequence[Sequence[Variable]],
    listed: list[Sequence[Variable]],
) -> Iterator[Finding]:
    """Rules that match a small tensor, while a large one with the same part in its name is bare."""
    rules = where.rules
    for rule in rules.rules:
        words = re.findall(r"[A-Za-z]\w+", re.sub(r"\\.", " ", rule.key))[::-1]
        claimed = [v for v in variables if rule in rules.matching(v.path)]
        for group in bare:
            pairs = ((small, _common(words, small, group[0])) for small in claimed)
            small, word = next((pair for pair in pairs if pair[1]), (None, ""))
            if small is None:
                continue
            message = (
                f"{rule.key!r} shards {_sized([small])}, and no rule {_sized(group)}, "
                f"with {word!r} in the name as well: was the large one meant?"
            )
            if group in listed:  # a map takes no key twice
                message += " Its rule is printed above."
            else:
                message += _write([_sharded(where, group, axes)])
                listed.append(group)
            yield Finding(WARNING, "sibling", message, rule.key, tuple(v.path for v in group))


def _common(words: Sequence[str], small: Variable, large: Variable) -> str:
    """The first of the words that two names have in common, if one tensor is far larger."""
    parent, _, name = small.path.rpartition("/")
    other = large.path.rpartition("/")[2]
    word = next((word for word in words if _has(parent, word)), "")
    alike = other == name or _has(other, word)  # not a kernel and a bias
    return word if alike and large.nbytes > 2 * small.nbytes and _has(large.path, word) else ""


def companions(where: Where, variables: Sequence[Variable]) -> Iterator[Finding]:
    """What belongs to a kernel that is sharded, and has no rule: LoRA's matrices, scales."""
    rules = where.rules
    known = {variable.path: variable for variable in variables}
    groups: dict[tuple[str, tuple[int, ...], tuple[tuple[str, ...], ...]], list[str]] = {}
    owners: dict[str, str] = {}
    for owner in variables:
        wanted = rules.wanted(owner.path, owner.shape)
        if wanted is None or wanted.num_slices == 1:
            continue
        parent, slash, name = owner.path.rpartition("/")
        axes = wanted.spec
        for other, kept in (
            (f"lora_{name}_a", axes[:-1]),
            (f"lora_{name}_b", axes[-1:]),
            (f"{name}_scale", axes[:1] if name == "embeddings" else axes),
            (f"{name}_zero", axes[:1] if name == "embeddings" else axes),
        ):
            found = known.get(parent + slash + other)
            if found is None or rules.matching(found.path):
                continue
            first = other.endswith("_a") or (name == "embeddings" and not other.endswith("_b"))
            fit = _fitted(rules, found.shape, kept, first=first)
            owners[found.path] = owner.path
            groups.setdefault((form_of(found.path), found.shape, fit), []).append(found.path)
    for (_, shape, fit), alike in groups.items():
        one = len(alike) == 1
        message = (
            f"{some(alike)}, of shape {list(shape)}, {'is' if one else 'are'} replicated on every "
            f"device: no rule matches {'it' if one else 'them'}, while "
            f"{some([owners[path] for path in alike])} {'is' if one else 'are'} sharded."
        )
        if not any(fit):
            message += " Nothing in it is to be sharded; a rule says that this is meant."
        message += _write([rule_for(where, alike, fit)])
        yield Finding(WARNING, "companion", message, paths=tuple(alike))


def _fitted(
    rules: Rules, shape: Sequence[int], axes: Sequence[tuple[str, ...]], *, first: bool
) -> tuple[tuple[str, ...], ...]:
    """The axes for the first dimensions, or the last, where they divide them."""
    kept = list(axes)[: len(shape)] if first else list(axes)[max(0, len(axes) - len(shape)) :]
    gap: list[tuple[str, ...]] = [()] * (len(shape) - len(kept))
    wanted = [*kept, *gap] if first else [*gap, *kept]
    return tuple(
        each if size > 1 and size % rules.mesh.size(*each) == 0 else ()
        for size, each in zip(shape, wanted, strict=True)
    )


def _sharded(where: Where, group: Sequence[Variable], axes: Sequence[str]) -> str | None:
    fit = axes_that_fit(where.rules, group[0].shape, axes)
    alike = [variable.path for variable in group]
    return rule_for(where, alike, fit) if fit else None


def _write(lines: Sequence[str | None]) -> str:
    """The rules to paste, and how many have none."""
    found = [line for line in lines if line]
    text = ""
    if without := len(lines) - len(found):
        what = "it" if len(lines) == 1 else f"{without} of them"
        text += f" There is no simple rule for {what}: no dimension divides, or no key is clear."
    return text + (f" Write: {'; '.join(found)}" if found else "")


def _sized(group: Sequence[Variable]) -> str:
    alike = f", and {len(group) - 1} like it" * (len(group) > 1)
    return f"{group[0].path!r} ({bytes_text(group[0].nbytes)}{alike})"


def _bytes(variables: Sequence[Variable]) -> int:
    return sum(variable.nbytes for variable in variables)


def _has(path: str, word: str) -> bool:
    """Whether a word is part of a path, between its slashes, underscores and ends."""
    return bool(re.search(rf"(?<![A-Za-z0-9]){re.escape(word)}(?![A-Za-z0-9])", path))
