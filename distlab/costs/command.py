"""`python -m distlab costs`: an estimate of one plan, or the plans that fit."""

from collections.abc import Iterable
from dataclasses import fields, replace
from math import prod
from pathlib import Path
from shlex import quote
from typing import Any

import click

from distlab.costs.estimates import Estimate, estimate
from distlab.costs.machines import MACHINES, Machine
from distlab.costs.memory import ROOM
from distlab.costs.models import MODELS, Transformer
from distlab.costs.plans import PRECISIONS, Plan
from distlab.costs.searching import least_memory, search
from distlab.tables import aligned

_PROGRAM = ("precision", "attention", "fused", "fused_loss", "overlap")
"""Of a plan, what a search takes, too."""
_AXES = ("data", "tensor", "pipeline", "context", "expert", "micro_batch", "zero", "interleave")


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def _numbers(names: tuple[str, ...], words: str) -> list[click.Parameter]:
    return [click.Option([_option(name)], type=int, metavar="N", help=words) for name in names]


def _choice(name: str, known: Iterable[str], default: str | None = None) -> click.Parameter:
    words = f"By default {default or 'none'}."
    return click.Option(
        [_option(name)], type=click.Choice(list(known)), default=default, help=words
    )


def _switch(name: str, words: str) -> click.Parameter:
    """True, with `--x/--no-x` also False; None where it is not given."""
    return click.Option([name], is_flag=True, default=None, help=words)


_OPTIONS: list[click.Parameter] = [
    click.Argument(["model"]),
    *_numbers(("sequence",), "Tokens in a sequence."),
    _choice("machine", sorted(MACHINES), "h100"),
    *_numbers(("batch",), "Sequences in a step; by default 8 for each device."),
    click.Option(["--devices"], type=int, metavar="N", help="Search the plans for so many."),
    *_numbers(_AXES, "Of one plan."),
    _choice("recompute", ("selective", "full", "matmuls")),
    _switch(
        "--sequence-parallel/--no-sequence-parallel",
        "By default on where --tensor is more than 1, as in a search.",
    ),
    _switch("--short-ends", "The first and the last stage have one layer less."),
    _switch("--overlap-tensor", "The tensor axis sends beside computation."),
    click.Option(
        ["--room"],
        type=float,
        metavar="GB",
        help="Of a device that stay free; by default a sixth.",
    ),
    _choice("precision", sorted(PRECISIONS), "bf16_fp32_gradients"),
    _choice("attention", ("flash", "standard"), "flash"),
    _switch("--fused/--no-fused", "Off: plain PyTorch, neither compiled nor with fused kernels."),
    _switch("--overlap/--no-overlap", "Off: nothing is sent beside computation."),
    _switch("--fused-loss", "The loss works on the logits in place."),
]


@click.command(
    "costs",
    params=_OPTIONS,
    epilog="Example: python -m distlab costs config.json --machine h200 --devices 64",
)
@click.pass_context
def costs(context: click.Context, /, **options: Any) -> str:
    """Estimate memory and time of a training step of a transformer.

    With --devices the plans that fit, best first; else one plan, from its axes. MODEL is a
    published config.json, or gpt3-175b, llama3-8b, llama3-70b or llama3-405b. For other machines,
    and other rates, use costs.Machine in Python.
    """
    try:
        return _answer(options)
    except (OSError, TypeError, ValueError) as error:
        context.fail(str(error))


def _answer(options: dict[str, Any]) -> str:
    model, machine = _model(options), MACHINES[options["machine"]]
    asked = {field.name: options.get(field.name) for field in fields(Plan)}
    given: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    room, devices = _room(options["room"], machine.memory), options["devices"]
    if devices is None:
        axes = (given.get(axis, 1) for axis in ("data", "tensor", "pipeline", "context"))
        given.setdefault("batch", 8 * prod(axes))
        given.setdefault("sequence_parallel", given.get("tensor", 1) > 1)
        return str(estimate(model, Plan(**given), machine, room=room))
    own = sorted(set(given) - {"batch", *_PROGRAM})
    if own:
        raise ValueError(
            f"{_option(own[0])} is for one plan: leave --devices out, or {_option(own[0])}"
        )
    given.setdefault("batch", 8 * devices)
    found = search(model, devices, machine, room=room, **given)
    if not found:
        return _none(model, devices, machine, Plan(**given), room)
    parts = _table(found), _doubts(found), _again(options, found[0].plan)
    return "\n\n".join(part for part in parts if part)


def _none(
    model: Transformer, devices: int, machine: Machine, base: Plan, room: float | None
) -> str:
    """Why no plan fits, and what would help."""
    least = least_memory(model, devices, machine, base)
    fits = f"No plan fits {devices} x {machine.name} with batches of {base.batch}"
    if least is None:
        return (
            f"{fits}: no data x tensor x pipeline x context = {devices} divides the batch, the "
            f"{model.heads} heads and the {model.layers} layers. Give other --devices or --batch."
        )
    usable = machine.memory - (machine.memory * ROOM if room is None else room)
    told = (
        f"{fits}: the smallest counts {least / 1e9:.1f} GB per device, and {usable / 1e9:.1f} may "
        f"be used of {machine.memory / 1e9:.1f}."
    )
    cures = ["more devices"]
    if base.batch % devices:
        cures.append("batches that more of them divide")
    cures.append("less --room" if least <= machine.memory else "a --precision of fewer bytes")
    return f"{told} Use {', '.join(cures[:-1])}, or {cures[-1]}."


def _doubts(found: list[Estimate]) -> str:
    """What is not known about the plans of a table, and about which."""
    rows: dict[str, list[str]] = {}
    for number, each in enumerate(found, start=1):
        for doubt in each.doubts:
            rows.setdefault(doubt, []).append(str(number))
    lines = []
    for doubt, numbers in rows.items():
        which = f"row{'s' * (len(numbers) > 1)} {', '.join(numbers)}"
        lines.append(f"{'all rows' if len(numbers) == len(found) else which}: {doubt}")
    return "\n".join(lines)


def _again(options: dict[str, Any], plan: Plan) -> str:
    """How to ask for this plan alone, in a shell and in Python: all that is not a default."""
    asked = {name: options[name] for name in ("sequence", "machine", "room")}
    changed = {
        field.name: getattr(plan, field.name)
        for field in fields(Plan)
        if getattr(plan, field.name) != field.default
    }
    told = {**asked, **changed, "precision": plan.precision, "attention": plan.attention}
    told["sequence_parallel"] = None  # on where there is a tensor axis, as in every plan found
    words: list[str] = [word for name, value in told.items() for word in _words(name, value)]
    shell = " ".join(["python -m distlab costs", quote(options["model"]), *words])
    python = ", ".join(f"{name}={value!r}" for name, value in changed.items())
    return f"The first plan by itself:\n{shell}\ncosts.Plan({python})"


def _words(name: str, value: Any) -> list[str]:
    """An option and its value, as a shell takes them."""
    if value is None:
        return []
    if isinstance(value, bool):
        return [_option(name) if value else _option(f"no_{name}")]
    return [_option(name), f"{value:g}" if isinstance(value, float) else str(value)]


def _room(gigabytes: float | None, memory: float) -> float | None:
    if gigabytes is None:
        return None
    if not 0 <= gigabytes * 1e9 < memory:
        raise ValueError(
            f"--room {gigabytes:g}: give GB that stay free, from 0 to less than the "
            f"{memory / 1e9:.0f} of a device"
        )
    return gigabytes * 1e9


def _model(options: dict[str, Any]) -> Transformer:
    name, sequence = options["model"], options["sequence"]
    if name not in MODELS:
        if not Path(name).exists():
            raise ValueError(f"MODEL {name}: give a config.json, or one of {', '.join(MODELS)}")
        return Transformer.from_config(name, sequence)
    return replace(MODELS[name], sequence=sequence) if sequence else MODELS[name]


def _table(found: list[Estimate]) -> str:
    heads = (*("data", "tensor", "pipeline", "context", "expert", "ZeRO"), "micro-batch")
    rows: list[tuple[str, ...]] = [
        (*heads, "interleave", "recompute", "GB", "s/step", "range", "MFU", "bound by")
    ]
    for each in found:
        plan, time = each.plan, each.step_time
        sizes = (plan.data, plan.tensor, plan.pipeline, plan.context, plan.expert, plan.zero)
        rows.append(
            (
                *map(str, (*sizes, plan.micro_batch, plan.interleave)),
                plan.recompute or "-",
                f"{each.memory.total / 1e9:.0f}",
                f"{time:.3g}",
                f"{time.low:.3g} to {time.high:.3g}",
                f"{each.mfu:.0%}",
                each.bound,
            )
        )
    short = dict.fromkeys(str(each.plan.pipeline) for each in found if each.plan.short_ends)
    note = f"\n{', '.join(short)} stages: the first and the last have one layer less (--short-ends)"
    return aligned(rows, right=(*range(8), 9, 10, 12)) + (note if short else "")
