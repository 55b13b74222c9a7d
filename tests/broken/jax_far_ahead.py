"""JAX on virtual CPU devices, far ahead of what has run: an all-reduce waits for itself."""

import os
from importlib.metadata import version

if int(version("jax").split(".")[1]) >= 10:  # these wait for 40 s by default
    os.environ["XLA_FLAGS"] = (
        "--xla_cpu_collective_call_terminate_timeout_seconds=5"
        " --xla_cpu_collective_call_warn_stuck_timeout_seconds=2"
    )

import jax

jax.config.update("jax_num_cpu_devices", 8)

import numpy as np  # noqa: E402
from jax.sharding import NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

mesh = jax.make_mesh((8,), ("data",))
x = jax.device_put(np.ones((4096, 256), "float32"), NamedSharding(mesh, P("data")))
w = jax.device_put(np.ones((256, 256), "float32"), NamedSharding(mesh, P()))
step = jax.jit(lambda w, x: w - 1e-6 * jax.grad(lambda w: ((x @ w) ** 2).mean())(w))
for _ in range(2000):
    w = step(w, x)
w.block_until_ready()
print("WORKS")
