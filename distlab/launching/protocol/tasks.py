"""The ranks of a job: their tasks, and the nodes they are on."""

from dataclasses import dataclass, field

from distlab.ports import HOST


@dataclass(frozen=True)
class Part:
    """The ranks of a job on one node, which one supervisor starts: all of them, at home.

    Attributes:
        ranks: Which ranks these are.
        host: The address of their node, at which the other ranks reach them.
        node: The number of that node among those of the job, from 0.
        nodes: How many nodes there are.
        addresses: Where the ranks of all nodes listen that others look for, if that is known.
        ports: The descriptors that hold those of them that are on this node.
    """

    ranks: list[int]
    host: str
    node: int
    nodes: int
    addresses: dict[int, str] = field(default_factory=dict)
    ports: dict[int, int] = field(default_factory=dict)


def whole(world_size: int) -> Part:
    """All ranks of a job, on this machine."""
    return Part(list(range(world_size)), HOST, 0, 1)


@dataclass(frozen=True)
class Task:
    """The place of one rank in its job: its task type and its index among those of that type."""

    role: str
    index: int

    def __str__(self) -> str:
        return f"{self.role} {self.index}"


def services(tasks: list[Task]) -> set[int]:
    """Ranks that never end by themselves: where there are parameter servers, all but the chief."""
    roles = {task.role for task in tasks}
    serving = {"ps", "worker"} if {"ps", "chief"} <= roles else set()
    return {rank for rank, task in enumerate(tasks) if task.role in serving}
