"""A training program for every framework: `python _training.py FRAMEWORK STEPS [PATIENCE]`.

It takes its place from whoever starts it, prints a line at step 50, and at the end where it was and
all losses, which it writes to a file in the folder ANSWERS as well, if there is such a variable.
PATIENCE is how many seconds a rank waits for one that is silent, where that can be set.
"""

import contextlib
import json
import os
import socket
import sys
import time
from datetime import timedelta
from pathlib import Path

import numpy as np
import psutil

import distlab

RATE = 0.1


def batch(step, rank=0, world_size=1):
    """A rank's part of a step's examples: rows of 8 numbers, and their noisy sums."""
    random = np.random.default_rng(step)
    x = random.normal(size=(32, 8))
    y = x.sum(axis=1, keepdims=True) + random.normal(size=(32, 1))
    return x[rank::world_size].astype("float32"), y[rank::world_size].astype("float32")


def serial_losses(steps):
    """The losses of a linear model by NumPy, in double precision and without any framework."""
    weights, losses = np.zeros((9, 1)), []
    for step in range(steps):
        x, y = batch(step)
        x = np.hstack([x, np.ones((len(x), 1))])
        error = x @ weights - y
        losses.append(float((error**2).mean()))
        weights -= RATE * 2 * x.T @ error / len(x)
    return losses


def network():
    """The number of the network namespace this process is in."""
    return Path("/proc/self/ns/net").stat().st_ino


def say(line):
    """Print a line in one piece, on a line of its own."""
    os.write(1, f"\n{line}\n".encode())


def train_torch(info, steps, patience):
    import torch
    import torch.distributed as dist
    import torch.distributed.nn  # before there is a group, which its functions' defaults would keep

    limit = None if patience is None else timedelta(seconds=patience)
    dist.init_process_group("gloo", timeout=limit)
    yield from train_ddp(torch, dist, info, steps)
    # A thread of Gloo that outlives the interpreter aborts the process, now and then. These end
    # all of them, as nothing refers to the group any more: DDP is gone.
    dist.barrier()
    dist.destroy_process_group()


def train_ddp(torch, dist, info, steps):
    model = torch.nn.Linear(8, 1)
    torch.nn.init.zeros_(model.weight)
    torch.nn.init.zeros_(model.bias)
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=RATE)
    for step in range(steps):
        x, y = map(torch.from_numpy, batch(step, info.rank, info.world_size))
        loss = torch.nn.functional.mse_loss(parallel(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss = loss.detach()
        dist.all_reduce(loss)
        yield loss.item() / info.world_size


def train_jax(info, steps, patience):
    import jax
    import jax.numpy as jnp
    from jax.sharding import NamedSharding, PartitionSpec

    jax.config.update("jax_platforms", "cpu")
    limit = {} if patience is None else {"heartbeat_timeout_seconds": int(patience)}
    jax.distributed.initialize(**limit)
    mesh = jax.make_mesh((info.world_size,), ("data",))
    split = NamedSharding(mesh, PartitionSpec("data"))

    @jax.jit
    def train(weights, x, y):
        def loss_of(weights):
            return jnp.mean((x @ weights[:8] + weights[8] - y) ** 2)

        loss, gradient = jax.value_and_grad(loss_of)(weights)
        return loss, weights - RATE * gradient

    weights = jax.device_put(np.zeros((9, 1), "float32"), NamedSharding(mesh, PartitionSpec()))
    for step in range(steps):
        own = batch(step, info.rank, info.world_size)
        x, y = (jax.make_array_from_process_local_data(split, part) for part in own)
        loss, weights = train(weights, x, y)
        yield float(loss)


def train_tensorflow(info, steps, _):
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()

    def replica_step(weights, x, y):
        with tf.GradientTape() as tape:
            tape.watch(weights)
            loss = tf.reduce_mean((x @ weights[:8] + weights[8] - y) ** 2)
        own = [loss, tape.gradient(loss, weights)]
        loss, gradient = tf.distribute.get_replica_context().all_reduce("mean", own)
        return loss, weights - RATE * gradient

    @tf.function
    def train(weights, x, y):
        return strategy.run(replica_step, args=(weights, x, y))

    weights = tf.zeros((9, 1))
    for step in range(steps):
        x, y = map(tf.constant, batch(step, info.rank, info.world_size))
        loss, weights = train(weights, x, y)
        yield float(loss)
    if info.world_size > 1:
        part_together(info)


def part_together(info):
    """Wait for the others: who ends closes its sockets, which another may still be reading from."""
    import tensorflow as tf
    from tensorflow.python.eager import context

    service, limit = context.context(), 60_000
    service.set_config_key_value(f"trained/{info.rank}", "yes")
    others = [rank for rank in range(info.world_size) if rank != info.rank]
    for rank in others:
        service.get_config_key_value(f"trained/{rank}", limit)
    if info.rank == 0:  # where the service is: it ends last
        for rank in others:
            service.get_config_key_value(f"parting/{rank}", limit)
    else:
        with contextlib.suppress(tf.errors.OpError):  # it may end before it has answered
            service.set_config_key_value(f"parting/{info.rank}", "yes")


TRAIN = {"torch": train_torch, "jax": train_jax, "tensorflow": train_tensorflow}


def main(framework, steps, patience=None):
    info = distlab.rank_info()
    info.prepare(framework)
    losses, longest, before = [], 0.0, None
    for loss in TRAIN[framework](info, int(steps), None if patience is None else float(patience)):
        losses.append(loss)
        now = time.monotonic()
        longest, before = max(longest, now - (before or now)), now
        if len(losses) == 50:
            say("step 50")
    known = [one for each in psutil.net_if_addrs().values() for one in each]
    answer = {
        "rank": info.rank,
        "world_size": info.world_size,
        "node": info.node,
        "launcher": info.launcher,
        "network": network(),
        "addresses": [one.address for one in known if one.family == socket.AF_INET],
        "longest step": longest,
        "losses": losses,
    }
    say(json.dumps(answer))
    if folder := os.environ.get("ANSWERS"):
        Path(folder, f"said.{info.rank}").write_text(json.dumps(answer))
    return answer


if __name__ == "__main__":
    main(*sys.argv[1:])
    if "DISTLAB_JOB" not in os.environ:
        # As distlab's ranks end. PyTorch 2.13 destroys Gloo's groups under its own feet at times:
        # of 200 runs on a busy machine 4 aborted or hung, with destroy_process_group as without.
        os._exit(0)
