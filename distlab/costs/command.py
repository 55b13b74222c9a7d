"""`python -m distlab costs`: an estimate of one plan, or the plans that fit."""

from dataclasses import Field, fields, replace
from math import prod
from pathlib import Path
from typing import Any

import click

from distlab.costs.estimates import Estimate, estimate
from distlab.costs.machines import MACHINES
from distlab.costs.models import MODELS, RECOMPUTE, Transformer
from distlab.costs.plans import ATTENTION, PRECISIONS, Plan
from distlab.costs.searching import search
from distlab.tables import aligned

_PROGRAM = ("batch", "precision", "attention", "fused", "fused_loss", "overlap")
"""Of a plan, what a search takes, too."""
_USUAL = {"precision": "bf16_fp32_gradients", "attention": "flash"}
_NAMES = {"recompute": RECOMPUTE[1:], "precision": PRECISIONS, "attention": ATTENTION}
_COLUMNS = (
    *("data", "tensor", "pipeline", "context", "expert", "zero", "micro_batch"),
    *("interleave", "short_ends", "recompute"),
)
"""Of a plan, what a search chooses."""


def _option(field: Field[Any]) -> click.Parameter:
    """The option for an attribute of a plan."""
    name = field.name.replace("_", "-")
    if field.type is bool:
        return click.Option([f"--{name}/--no-{name}"], default=None)
    if field.name in _NAMES:
        known, usual = click.Choice(list(_NAMES[field.name])), _USUAL.get(field.name)
        return click.Option([f"--{name}"], type=known, default=usual, show_default=True)
    return click.Option([f"--{name}"], type=int, metavar="N")


_OPTIONS: list[click.Parameter] = [
    click.Argument(["model"]),
    click.Option(["--machine"], type=click.Choice(sorted(MACHINES)), default="h100"),
    click.Option(["--sequence"], type=int, metavar="N", help="Tokens in a sequence."),
    click.Option(["--devices"], type=int, metavar="N", help="Search the plans for so many."),
    click.Option(["--room"], type=float, metavar="GB", help="Of a device that stay free."),
    *map(_option, fields(Plan)),
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
    published config.json, or gpt3-175b, llama3-8b, llama3-70b or llama3-405b. By default a step has
    8 sequences for each device, a sixth of the memory stays free, and a tensor axis has sequence
    parallelism. Other options mean what `help(distlab.costs.Plan)` says. For other machines, and
    other rates, use costs.Machine in Python.
    """
    try:
        return _answer(options)
    except (OSError, TypeError, ValueError) as error:
        context.fail(str(error))


def _answer(options: dict[str, Any]) -> str:
    model, machine = _model(options), MACHINES[options["machine"]]
    asked = {field.name: options[field.name] for field in fields(Plan)}
    given: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    room = None if options["room"] is None else options["room"] * 1e9
    devices = options["devices"]
    if devices is None:
        axes = (given.get(axis, 1) for axis in ("data", "tensor", "pipeline", "context"))
        given.setdefault("batch", 8 * prod(axes))
        given.setdefault("sequence_parallel", given.get("tensor", 1) > 1)
        return str(estimate(model, Plan(**given), machine, room=room))
    for name in given.keys() - {*_PROGRAM}:
        option = "--" + name.replace("_", "-")
        raise ValueError(f"{option} is for one plan: leave --devices out, or {option}")
    given.setdefault("batch", 8 * devices)
    found = search(model, devices, machine, room=room, **given)
    if not found:
        return (
            f"No plan fits {devices} x {machine.name} with batches of {given['batch']}: give more "
            "--devices, less --room, a --precision of fewer bytes, or sizes that divide."
        )
    return f"{_table(found)}\n\nThe first plan:\n{found[0]}\ncosts.{found[0].plan}"


def _model(options: dict[str, Any]) -> Transformer:
    name, sequence = options["model"], options["sequence"]
    if name not in MODELS:
        if not Path(name).exists():
            raise ValueError(f"MODEL {name}: give a config.json, or one of {', '.join(MODELS)}")
        return Transformer.from_config(name, sequence)
    return replace(MODELS[name], sequence=sequence) if sequence else MODELS[name]


def _table(found: list[Estimate]) -> str:
    rows: list[tuple[str, ...]] = [(*_COLUMNS, "GB", "s/step", "range", "MFU", "bound by")]
    for each in found:
        time = each.step_time
        numbers = (
            f"{each.memory.total / 1e9:.0f}",
            "-" if each.rough else f"{time:.3g}",
            f"{time.low:.3g} to {time.high:.3g}",
        )
        plan = (str(getattr(each.plan, name) or "-") for name in _COLUMNS)
        rows.append((*plan, *numbers, "-" if each.rough else f"{each.mfu:.0%}", each.bound))
    return aligned(rows, right=(*range(8), 10, 11, 13))
