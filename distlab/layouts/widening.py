"""The types that a program asked its collectives for, where XLA moves wider ones.

On CPUs XLA widens bfloat16 collectives to float32, float8 to float16 and int4 to int8, and then
removes the conversions around them where it can. What was asked for is in the program before
that: XLA writes it to a file while it compiles. A program that is compiled already has it no more.
"""

import math
import re
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from distlab.layouts.communication import Collective
from distlab.layouts.view import bits

_NARROW = re.compile(r"[<x](bf16|f8\w+|f4\w+|f6\w+|u?i[24])>")
_WIDENED = re.compile(r"after_(all-reduce-promotion|float-normalization)")
_OPTIONS = {
    "xla_dump_hlo_as_text": True,
    "xla_dump_hlo_pass_re": "pipeline-start|spmd-.*|all-reduce-promotion|float-normalization.*",
}


def compiled_and_before(lowered: Any) -> tuple[Any, str | None]:
    """Compile what `jax.jit(f).lower(...)` returned.

    Returns:
        The compiled program, and its text from before types were widened; None if none were.
    """
    if not _NARROW.search(lowered.as_text()):
        return lowered.compile(), None
    with tempfile.TemporaryDirectory(prefix="distlab-") as folder:
        compiled = lowered.compile(compiler_options={**_OPTIONS, "xla_dump_to": folder})
        before: Path | None = None
        for path in sorted(Path(folder).glob("*.[0-9][0-9][0-9][0-9].*.txt")):
            if _WIDENED.search(path.name):
                return compiled, before.read_text() if before else None
            before = path
    return compiled, None


def if_widened(program: str) -> str:
    """What to say of the types in a compiled program: nothing if it has no narrow ones."""
    import jax

    if jax.default_backend() != "cpu" or not re.search(r"\b(bf16|f8\w+|f4\w+|[su]4)\[", program):
        return ""
    return (
        "This program was compiled before it was given, and for a CPU, which may move wider types "
        "than were asked for: count the function, or what lower() returned."
    )


def as_asked(found: Iterable[Collective], before: Iterable[Collective]) -> tuple[Collective, ...]:
    """Give collectives the types that they had before they were widened.

    XLA may have combined or removed some since then. So each tensor is looked up by the kind of
    its collective, the devices and the number of elements.

    Args:
        found: Those of the compiled program.
        before: Those of the program from before.

    Returns:
        The former; where a type was narrower, with that type, and what is moved in `moved`.
    """
    asked: dict[tuple[object, ...], list[str]] = {}
    for each in before:
        for key, dtype in zip(_keys(each), (dtype for dtype, _ in each.tensors), strict=True):
            asked.setdefault(key, []).append(dtype)
    result = []
    for each in found:
        tensors = []
        for key, (dtype, shape) in zip(_keys(each), each.tensors, strict=True):
            known = asked.get(key, [])
            # Where types differ, in the order in which they are written.
            narrow = known.pop(0) if len(set(known)) > 1 else next(iter(known), dtype)
            tensors.append((narrow if (bits(narrow) or 0) < (bits(dtype) or 0) else dtype, shape))
        same = tuple(tensors) == each.tensors
        result.append(each if same else replace(each, tensors=tuple(tensors), moved=each.tensors))
    return tuple(result)


def _keys(each: Collective) -> list[tuple[object, ...]]:
    sizes = [math.prod(shape) for _, shape in each.tensors]
    if each.kind.endswith("all-to-all"):  # of one tensor, or of its parts
        sizes = [sum(sizes)] * len(sizes)
    return [(each.kind, each.axes, each.devices, size) for size in sizes]
