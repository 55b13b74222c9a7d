"""Silent errors of JAX: `shard_map`, reductions, random numbers; one process, eight devices."""

import functools

from silent.row import row

on_devices = functools.partial(row, framework="jax", devices=(1, 8))


def over_devices(function, *specs, **options):
    """`shard_map` over all devices, on the axis `data`."""
    import jax

    mesh = jax.sharding.Mesh(jax.devices(), ("data",))
    *inputs, output = specs
    shard = functools.partial(jax.shard_map, mesh=mesh, in_specs=tuple(inputs), out_specs=output)
    return jax.jit(shard(function, **options))


@on_devices(
    "the gradient taken inside `jax.shard_map`, then `pmean` of it, as it was right in `pmap`",
    "the gradient of a replicated weight is a sum over devices already, and `pmean` changes "
    "nothing: it is multiplied by the number of devices",
    "`pmean` of the loss, inside of what is differentiated",
    lesson="14",
)
def gradient_then_pmean(cured):
    import jax
    import jax.numpy as jnp
    from jax.sharding import PartitionSpec as P

    def step(weight, x):
        def loss(weight):
            mean = (weight * x).mean()
            return jax.lax.pmean(mean, "data") if cured else mean

        return jax.lax.pmean(jax.grad(loss)(weight), "data")

    return {"gradient": over_devices(step, P(), P("data"), P())(jnp.ones(()), jnp.arange(8.0))}


@on_devices(
    "`psum` of a value that is replicated already, inside `shard_map`",
    "it is multiplied by the number of devices",
    "no `psum`: `jax.typeof(x).vma` says over which axes a value varies",
)
def psum_of_a_replicated_value(cured):
    import jax
    import jax.numpy as jnp
    from jax.sharding import PartitionSpec as P

    def loss(weight, x):
        penalty = 0.5 * (weight**2).sum()
        data = jax.lax.pmean((weight * x).mean(), "data")
        return data + (penalty if cured else jax.lax.psum(penalty, "data"))

    return {"loss": over_devices(loss, P(), P("data"), P())(jnp.full((2,), 3.0), jnp.zeros((8, 2)))}


@on_devices(
    "`shard_map(..., check_vma=False)`, and the gradient of a loss with a `psum` in it",
    "the transpose of `psum` is `psum` then: gradients are multiplied by the number of devices",
    "leave `check_vma` on",
    thread="https://github.com/jax-ml/jax/issues/3970",
)
def gradient_through_psum_unchecked(cured):
    import jax
    import jax.numpy as jnp
    from jax.sharding import PartitionSpec as P

    def step(weight, x):
        gradient = jax.grad(lambda w: jax.lax.psum((w * x).sum(), "data"))(weight)
        return gradient if cured else jax.lax.psum(gradient, "data")

    run = over_devices(step, P(), P("data"), P(), check_vma=cured)
    return {"gradient": run(jnp.ones(()), jnp.arange(8.0))}


@on_devices(
    "`jax.random` with one key inside `shard_map`, for dropout or noise",
    "each device draws the same numbers for its part of the batch",
    "`jax.random.fold_in(key, jax.lax.axis_index('data'))`",
)
def one_key_on_all_devices(cured):
    import jax
    import jax.numpy as jnp
    from jax.sharding import PartitionSpec as P

    def noise(x):
        key = jax.random.key(0)
        if cured:
            key = jax.random.fold_in(key, jax.lax.axis_index("data"))
        return x + jax.random.normal(key, x.shape)

    drawn = over_devices(noise, P("data"), P("data"))(jnp.zeros(8))
    return {"different numbers": len(jnp.unique(drawn))}


@on_devices(
    "`jnp.max` or `jnp.min` over a sharded axis, to see whether anything is NaN",
    "on CPUs a NaN is lost",
    "`jnp.isnan(x).any()`",
)
def maximum_loses_a_nan(cured):
    import jax
    import jax.numpy as jnp
    from jax.sharding import NamedSharding
    from jax.sharding import PartitionSpec as P

    mesh = jax.sharding.Mesh(jax.devices(), ("data",))
    x = jax.device_put(jnp.arange(16.0).at[11].set(jnp.nan), NamedSharding(mesh, P("data")))
    found = jnp.isnan(x).any() if cured else jnp.isnan(jax.jit(jnp.max)(x))
    return {"NaN found": found}


@on_devices(
    "a mean inside `shard_map` that is said to be replicated (`check_vma=False`, `out_specs=P()`)",
    "each device has the mean of its own part, and what is read is that of the first",
    "`jax.lax.pmean`, and leave `check_vma` on",
    lesson="14",
)
def mean_that_is_not_replicated(cured):
    import jax
    import jax.numpy as jnp
    from jax.sharding import PartitionSpec as P

    def mean(x):
        return jax.lax.pmean(x.mean(), "data") if cured else x.mean()

    return {"mean": over_devices(mean, P("data"), P(), check_vma=cured)(jnp.arange(8.0))}


@functools.partial(row, framework="jax", devices=(8, 1))(
    "`jax.device_put` of a NumPy array that the next batch is written into",
    "on CPUs JAX goes on with NumPy's memory if it begins at a multiple of 64 bytes: it has the "
    "numbers of the next batch (here on one device, whose part does)",
    "`jax.device_put(x.copy(), ...)`",
    thread="https://github.com/jax-ml/jax/issues/37830",
)
def memory_of_numpy(cured):
    import jax
    import numpy as np
    from jax.sharding import NamedSharding
    from jax.sharding import PartitionSpec as P

    mesh = jax.sharding.Mesh(jax.devices(), ("data",))
    memory = np.zeros(8 + 16, "float32")
    start = -memory.ctypes.data % 64 // 4  # numbers before the next multiple of 64 bytes
    batch = memory[start : start + 8]
    batch[:] = np.arange(8.0)
    x = jax.device_put(batch.copy() if cured else batch, NamedSharding(mesh, P("data")))
    x.block_until_ready()
    batch[:] = 0.0  # the next batch
    return {"batch": x}


@row(
    "`jax.make_array_from_process_local_data` with `P()`, from numbers that differ between "
    "processes, such as weights drawn from different seeds",
    "nothing compares them, as `jax.device_put` would: each process goes on with its own weights",
    "`multihost_utils.broadcast_one_to_all` first",
    framework="jax",
)
def replicated_from_own_numbers(cured):
    import jax
    import numpy as np
    from jax.experimental.multihost_utils import broadcast_one_to_all
    from jax.sharding import NamedSharding
    from jax.sharding import PartitionSpec as P

    jax.distributed.initialize()
    mesh = jax.sharding.Mesh(jax.devices(), ("data",))
    own = np.full(2, 1.0 + jax.process_index(), "float32")
    own = np.asarray(broadcast_one_to_all(own)) if cured else own
    weights = jax.make_array_from_process_local_data(NamedSharding(mesh, P()), own, (2,))
    return {"weights": weights}
