"""`python -m distlab costs`: an estimate of one plan, or the plans that fit."""

import argparse
from dataclasses import fields, replace
from typing import Any

from distlab.costs.estimates import Estimate, estimate
from distlab.costs.machines import MACHINES, Machine
from distlab.costs.memory import ROOM
from distlab.costs.models import MODELS, Transformer
from distlab.costs.plans import PRECISIONS, Plan
from distlab.costs.searching import least_memory, search
from distlab.tables import aligned

_SIZES = (
    "layers",
    "hidden",
    "heads",
    "sequence",
    "vocabulary",
    "ffn",
    "kv_heads",
    "head_size",
    "experts",
    "top_k",
)
_CHOICES = ("short_ends", "overlap_tensor")
_PROGRAM = ("precision", "attention", "fused", "fused_loss", "overlap")
"""Of a plan, what a search takes, too."""
_AXES = ("data", "tensor", "pipeline", "context", "expert", "micro_batch", "zero", "interleave")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to its parser."""
    parser.add_argument(
        "model", nargs="?", choices=sorted(MODELS), help="a model by name, or give its sizes"
    )
    sizes = parser.add_argument_group("sizes of a model, or what differs from the one named")
    for name in _SIZES:
        sizes.add_argument(_option(name), type=int, metavar="N")
    sizes.add_argument(
        "--tied", action=argparse.BooleanOptionalAction, help="one matrix for embedding and output"
    )
    sizes.add_argument("--gated", action="store_true", default=None, help="Llama's kind of layers")
    sizes.add_argument(
        "--side-by-side", action="store_true", default=None, help="PaLM's order inside a layer"
    )
    parser.add_argument(
        "--machine",
        choices=sorted(MACHINES),
        default="h100",
        help="by default h100; for others, and other rates, use costs.Machine in Python",
    )
    parser.add_argument("--batch", type=int, metavar="N", required=True, help="sequences in a step")
    parser.add_argument(
        "--devices", type=int, metavar="N", help="search the plans for so many devices"
    )
    plan = parser.add_argument_group("one plan")
    for name in _AXES:
        plan.add_argument(_option(name), type=int, metavar="N")
    plan.add_argument(
        "--recompute", choices=("selective", "full", "matmuls"), help="by default none"
    )
    plan.add_argument(
        "--sequence-parallel",
        action=argparse.BooleanOptionalAction,
        help="by default on where --tensor is more than 1, as in a search",
    )
    for name in _CHOICES:
        plan.add_argument(_option(name), action="store_true", default=None)
    both = parser.add_argument_group("both")
    both.add_argument(
        "--room", type=float, metavar="GB", help="of a device that stay free; by default a sixth"
    )
    both.add_argument(
        "--precision",
        choices=sorted(PRECISIONS),
        default="bf16_fp32_gradients",
        help="by default bf16_fp32_gradients",
    )
    both.add_argument(
        "--attention", choices=("flash", "standard"), default="flash", help="by default flash"
    )
    program = {
        "--no-fused": "plain PyTorch: neither compiled nor with fused kernels",
        "--no-overlap": "nothing is sent beside computation",
    }
    for name, words in program.items():
        both.add_argument(
            name, action="store_false", default=None, dest=name.removeprefix("--no-"), help=words
        )
    both.add_argument(
        "--fused-loss",
        action="store_true",
        default=None,
        help="the loss works on the logits in place",
    )


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def answer(options: argparse.Namespace) -> str:
    """What to print.

    Raises:
        ValueError: If sizes are missing, do not divide, or do not go together.
    """
    model, machine = _model(options), MACHINES[options.machine]
    asked = {field.name: getattr(options, field.name, None) for field in fields(Plan)}
    given: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    room = _room(options.room, machine.memory)
    if options.devices is None:
        given.setdefault("sequence_parallel", given.get("tensor", 1) > 1)
        return str(estimate(model, Plan(**given), machine, room=room))
    own = sorted(set(given) - {"batch", *_PROGRAM})
    if own:
        raise ValueError(
            f"{_option(own[0])} is for one plan: leave --devices out, or {_option(own[0])}"
        )
    found = search(model, options.devices, machine, room=room, **given)
    if not found:
        return _none(model, options.devices, machine, Plan(**given), room)
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


def _again(options: argparse.Namespace, plan: Plan) -> str:
    """How to ask for this plan alone, in a shell and in Python: all that is not a default."""
    model = [options.model] if options.model else []
    names = (*_SIZES, "gated", "side_by_side", "tied", "machine", "batch", "room")
    asked = {name: getattr(options, name) for name in names}
    changed = {
        field.name: getattr(plan, field.name)
        for field in fields(Plan)
        if getattr(plan, field.name) != field.default
    }
    told = {**asked, **changed, "precision": plan.precision, "attention": plan.attention}
    told["sequence_parallel"] = None  # on where there is a tensor axis, as in every plan found
    words: list[str] = [word for name, value in told.items() for word in _words(name, value)]
    shell = " ".join(["python -m distlab costs", *model, *words])
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


def _model(options: argparse.Namespace) -> Transformer:
    names = (*_SIZES, "gated", "side_by_side", "tied")
    sizes = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    if options.model:
        return replace(MODELS[options.model], **sizes)
    missing = [_option(name) for name in _SIZES[:5] if name not in sizes]
    if missing:
        raise ValueError(
            f"give the name of a model ({', '.join(sorted(MODELS))}), or its sizes: "
            f"{' '.join(missing)}"
        )
    return Transformer(**sizes)


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
