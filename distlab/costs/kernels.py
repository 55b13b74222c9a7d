"""Seconds that one operation takes on a device, or one collective on several."""

from distlab.costs.machines import Machine

STREAM = 0.79
"""Fraction of the memory's bandwidth that operations on each element reach."""
LAUNCH = 4e-6
"""Seconds that each kernel takes at least."""
BUS = 0.71
"""Fraction of a link's bandwidth that a ring of large messages reaches."""
BESIDE = 0.72
"""Part of its time that communication inside a node takes from the computation beside it: both use
memory, and both use the device's processors."""
RING = 20
"""Ranks up to which latency grows with a ring; larger groups use trees."""


def matmul_time(
    m: float, n: float, k: float, machine: Machine, size: float, count: float = 1, out: float = 0
) -> float:
    """Seconds of `count` products (m, k) x (k, n) of numbers of `size` bytes.

    The arithmetic at the rate that the largest products reach, plus the time to read both factors
    and write the product (of numbers of `out` bytes, where that differs): so a product with one
    short side is slow, as its bytes are many for its FLOPs.
    """
    arithmetic = 2 * m * n * k / (machine.peak(size) * machine.matmul)
    memory = size * (m * k + k * n) + (out or size) * m * n
    memory /= machine.memory_bandwidth * STREAM
    return count * (arithmetic + memory) + LAUNCH


def stream_time(number: float, machine: Machine, kernels: int = 1) -> float:
    """Seconds to move so many bytes from or to memory in so many kernels."""
    return number / (machine.memory_bandwidth * STREAM) + kernels * LAUNCH


def ring_time(number: float, size: int, stride: int, machine: Machine) -> float:
    """Seconds of an all-gather or reduce-scatter of `number` bytes in all; an all-reduce is both.

    (n - 1) / n of the bytes leave each device. Where a group has several devices of a node, their
    links to the network share what enters the node.

    Args:
        number: Bytes of the whole tensor.
        size: Ranks in the group, n.
        stride: Ranks from one member of the group to the next.
        machine: Whose links.
    """
    if size == 1:
        return 0.0
    bandwidth = ring_bandwidth(size, stride, machine)
    inside = size * stride <= machine.devices_per_node
    latency = machine.inner_latency if inside else machine.outer_latency
    return (size - 1) / size * number / (bandwidth * BUS) + latency * min(size - 1, RING)


def ring_bandwidth(size: int, stride: int, machine: Machine) -> float:
    """Bytes per second that a device of such a group can send."""
    if size * stride <= machine.devices_per_node:
        return machine.inner_bandwidth
    together = max(1, machine.devices_per_node // stride)
    return min(machine.inner_bandwidth, machine.outer_bandwidth * together)


def all_to_all_time(number: float, size: int, stride: int, machine: Machine) -> float:
    """Seconds in which each device sends equal parts of its `number` bytes to all of the group.

    1 / n of the bytes go to each member, n - 1 of which are elsewhere. Those in the same node are
    reached through the links inside it. The rest leave through the device's own adapter. A ring
    enters a node once, so all adapters of a node can share its bytes; here every device has bytes
    of its own for every other node, and no adapter is free to help. Both ways run at the same time.

    Args:
        number: Bytes that each device has for the whole group.
        size: Ranks in the group, n.
        stride: Ranks from one member of the group to the next.
        machine: Whose links.
    """
    if size == 1:
        return 0.0
    near = min(size, max(1, machine.devices_per_node // stride))
    inner = (near - 1) / size * number / (machine.inner_bandwidth * BUS)
    outer = (size - near) / size * number / (machine.outer_bandwidth * BUS)
    latency = machine.outer_latency if size > near else machine.inner_latency
    return max(inner, outer) + latency * min(size - 1, RING)


def send_time(number: float, devices: int, machine: Machine) -> float:
    """Seconds of the slowest message between neighbours in a row of so many devices."""
    inside = devices <= machine.devices_per_node  # else some of the hops leave their node
    bandwidth = machine.inner_bandwidth if inside else machine.outer_bandwidth
    return number / (bandwidth * BUS) + (machine.inner_latency if inside else machine.outer_latency)


def beside(communication: float, computation: float, share: float = 1.0) -> float:
    """Seconds that communication adds to the computation it runs beside.

    Args:
        communication: Seconds of the communication by itself.
        computation: Seconds of the computation by itself.
        share: How fast its bytes pass, as a part of how fast they would inside a node. Bytes that
            pass at a network's pace take less of the memory's bandwidth at a time.
    """
    hidden = min(communication, computation)
    return communication - hidden + BESIDE * share * hidden
