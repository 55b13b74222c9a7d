"""What programs that train one model in different ways compute, send and store.

Each program ends with one of the reports, which is a dict: the loss of each step, the weights as
NumPy arrays, and two numbers of bytes. `sent` is what a device sends in a step, at least
(`collectives.sent_bytes`); `stored` is what it keeps between steps, the weights and the optimizer's
state, without single numbers such as a learning rate. `together` joins the reports of ranks.
"""

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distlab.layouts import collectives

__all__ = [
    "Trained",
    "dtensor_report",
    "fit_report",
    "jax_report",
    "keras_report",
    "meeting",
    "servers_report",
    "tf_report",
    "together",
    "torch_report",
]

Report = dict[str, Any]
Array = NDArray[Any]
REDUCE = "CollectiveReduceV2"


@dataclass(frozen=True)
class Trained:
    """What came of one program; bytes are the largest of any rank.

    Attributes:
        losses: The loss of each step.
        weights: All of the model's, each full.
        sent: Bytes sent in a step.
        stored: Bytes stored between steps.
        ranks: The report of each rank.
    """

    losses: Array
    weights: list[Array]
    sent: int
    stored: int
    ranks: list[Report]


def together(ranks: Sequence[Mapping[str, Report] | None], like: Sequence[Array]) -> dict[str, Any]:
    """Returns what came of each program, from what each rank reports of it.

    Args:
        ranks: For each rank its reports, by program; None for ranks that only serve.
        like: Arrays of the shapes of the full weights.
    """
    reporting = [rank for rank in ranks if rank]
    return {name: _trained([rank[name] for rank in reporting], like) for name in reporting[0]}


def _trained(reports: list[Report], like: Sequence[Array]) -> Trained:
    if len(reports[0]["weights"]) < len(like):  # stages of a pipeline
        weights = [weight for report in reports for weight in report["weights"]]
    else:
        parts = zip(*(report["weights"] for report in reports), strict=True)
        weights = [_full(list(each), full.shape) for each, full in zip(parts, like, strict=True)]
    losses = np.nanmean([report["losses"] for report in reports], axis=0)  # a stage may have none
    sent, stored = (max(report[key] for report in reports) for key in ("sent", "stored"))
    return Trained(losses, weights, sent, stored, reports)


def _full(parts: list[Array], shape: tuple[int, ...]) -> Array:
    """One weight, of which each rank has all, or a part along one dimension."""
    short = [dim for dim, size in enumerate(parts[0].shape) if size < shape[dim]]
    if short:
        return np.concatenate(parts, short[0])
    if not all(np.array_equal(part, parts[0]) for part in parts):
        raise ValueError("a weight of which each rank has all differs between the ranks")
    return parts[0]


def keras_report(model: Any, losses: Any, x: Array, y: Array) -> Report:
    """Reports on a Keras model that was trained on JAX, with batches like the first of `x`."""
    sent = collectives.count_train_step(model, x[0], y[0]).sent
    values = [v.value for v in [*model.trainable_variables, *model.optimizer.variables]]
    found = {"losses": losses, "weights": model.get_weights(), "sent": sent}
    return found | {"stored": _on_first_device(values)}


def jax_report(losses: Any, weights: list[Any], velocity: list[Any], program: Any) -> Report:
    """Reports on a step in JAX that was compiled to `program`, whose text it adds."""
    found = {"losses": losses, "weights": [np.asarray(w.addressable_data(0)) for w in weights]}
    sent, stored = collectives.count(program).sent, _on_first_device([*weights, *velocity])
    return found | {"sent": sent, "stored": stored, "program": program.as_text()}


def _on_first_device(values: list[Any]) -> int:
    return sum(value.addressable_shards[0].data.nbytes for value in values if value.ndim)


def torch_report(
    model: Any, optimizer: Any, losses: Any, step: Callable[[], Any], count_calls: bool
) -> Report:
    """Reports on a PyTorch model, after two more steps, which are watched.

    It adds `operations`, the floating-point operations of this rank in a step.

    Args:
        model: The model, or this rank's part of it.
        optimizer: Its optimizer, with a momentum.
        losses: The losses so far.
        step: Does one step more.
        count_calls: Whether to add `calls`, the collectives that `CommDebugMode` counts. Its hooks
            expect that the step calls the model once.
    """
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor.debug import CommDebugMode
    from torch.utils.flop_counter import FlopCounterMode

    full = [w.full_tensor() if isinstance(w, DTensor) else w for w in model.parameters()]
    weights = [w.detach().numpy().T.copy() for w in full]  # kernels: inputs, outputs
    kept = [*model.parameters(), *(state["momentum_buffer"] for state in optimizer.state.values())]
    stored = sum((t.to_local() if isinstance(t, DTensor) else t).nbytes for t in kept)
    counted, watched = CommDebugMode(), collectives.watch()
    with counted if count_calls else contextlib.nullcontext(), watched as seen, _sends() as sizes:
        step()
    with FlopCounterMode(display=False) as work:
        step()
    calls = {str(call): count for call, count in counted.get_comm_counts().items()}
    found = {"losses": losses, "weights": weights, "stored": stored, "calls": calls}
    found["operations"] = work.get_total_flops()
    return found | {"sent": seen.communication.sent + sum(sizes)}


@contextlib.contextmanager
def _sends() -> Iterator[list[int]]:
    """Collect the bytes of each message to one rank: no collectives, so `watch` sees none."""
    from torch.distributed import ProcessGroup

    sizes: list[int] = []
    send, found = ProcessGroup.send, vars(ProcessGroup)["send"]  # a function, and how it is bound

    def counted(group: Any, tensors: list[Any], *args: Any) -> Any:
        sizes.extend(tensor.nbytes for tensor in tensors)
        return send(group, tensors, *args)

    ProcessGroup.send = counted
    try:
        yield sizes
    finally:
        ProcessGroup.send = found


def fit_report(model: Any, losses: Any, x: Array, y: Array, devices: int) -> Report:
    """Reports on a model of tf_keras that `fit` trained, with batches like the first of `x`."""
    import tensorflow as tf

    data = tf.data.Dataset.from_tensor_slices((x[0], y[0])).batch(len(x[0]))
    data = model.distribute_strategy.experimental_distribute_dataset(data)
    graph = model.train_tf_function.get_concrete_function(iter(data)).graph
    return tf_report(model, model.optimizer, losses, graph, devices)


def tf_report(model: Any, optimizer: Any, losses: Any, graph: Any, devices: int) -> Report:
    """Reports on a model of tf_keras, whose step TensorFlow has traced to `graph`."""
    nodes = [node for node in graph.get_operations() if node.type == REDUCE]
    shapes = [node.inputs[0].shape for node in nodes if node.device == nodes[0].device]
    found = {
        "losses": losses,
        "weights": model.get_weights(),
        "sent": _all_reduced(shapes, devices),
    }
    variables = [*model.variables, *_variables(optimizer)]
    return found | {"stored": sum(4 * v.shape.num_elements() for v in variables if v.shape.rank)}


def meeting(begun: Any, gradients: list[Any]) -> list[Any]:
    """Returns the gradients as soon as two steps have computed theirs.

    Args:
        begun: A variable that counts the steps, which all workers share.
        gradients: Those of this step.
    """
    import tensorflow as tf

    with tf.control_dependencies(gradients):
        count = begun.assign_add(1)
    with tf.control_dependencies([count]):
        waited = tf.while_loop(lambda _: begun.read_value() < 2, lambda n: n + 1, [0])
    with tf.control_dependencies(waited):
        return [tf.identity(gradient) for gradient in gradients]


def servers_report(model: Any, optimizer: Any, losses: Any, graph: Any) -> Report:
    """Reports on a model on parameter servers: what a worker sends, what the servers store.

    An optimizer of `tf_keras.optimizers.legacy` updates a weight in one operation, which gets the
    gradient that the worker sends.
    """
    applied = [node for node in graph.get_operations() if node.type.startswith("ResourceApply")]
    sent = sum(4 * node.inputs[3].shape.num_elements() for node in applied)
    return tf_report(model, optimizer, losses, graph, 1) | {"sent": sent}


def dtensor_report(model: Any, optimizer: Any, losses: Any, devices: int) -> Report:
    """Reports on a model under DTensor, which keeps its programs among the context's functions."""
    from tensorflow.experimental import dtensor
    from tensorflow.python.eager import context

    functions = context.context()
    definitions = map(functions.get_function_def, functions.list_function_names())
    nodes = [node for each in definitions for node in each.node_def if node.op == REDUCE]
    shapes = [
        [size.size for size in node.attr["_output_shapes"].list.shape[0].dim]
        for node in nodes
        if node.device == nodes[0].device
    ]

    def local(variable: Any) -> Array:
        value: Array = dtensor.unpack(variable.read_value())[0].numpy()
        return value

    weights = [local(v) for v in model.variables]
    variables = {id(v): v for v in [*model.variables, *_variables(optimizer)] if v.shape.rank}
    found = {"losses": losses, "weights": weights, "sent": _all_reduced(shapes, devices)}
    return found | {"stored": sum(local(v).nbytes for v in variables.values())}


def _variables(optimizer: Any) -> list[Any]:
    found = optimizer.variables
    return list(found() if callable(found) else found)  # a function in `legacy`


def _all_reduced(shapes: Sequence[Any], devices: int) -> int:
    """Bytes that a device sends for all-reduces of float32 tensors of these shapes."""
    sizes = (4 * math.prod(shape) for shape in shapes)
    return sum(collectives.sent_bytes("all-reduce", size, devices) for size in sizes)
