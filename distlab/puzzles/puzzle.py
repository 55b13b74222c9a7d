"""What a puzzle is: its words, the data that it draws, what it allows, what it may cost."""

import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any, NamedTuple

import numpy as np

from distlab.puzzles import pictures
from distlab.puzzles.account import BYTES, FLOPS, LATENCY, amount
from distlab.puzzles.exchange import COLLECTIVES
from distlab.puzzles.me import Me
from distlab.puzzles.operations import OPERATIONS, Array
from distlab.tables import aligned

CALLS = ("add", "split", "join", "send", "receive", *COLLECTIVES)
"""The methods of `me` that a puzzle can allow. `keep` and `free` are always allowed."""
COSTS = (
    f"A tick is {FLOPS:,} FLOPs, or {BYTES:,} bytes on a link; a message takes {LATENCY:g} tick "
    "more."
)


class Score(NamedTuple):
    """What a solution took, or may take.

    Attributes:
        time: In ticks, until the last rank has come to its end.
        memory: The most bytes that a rank held at a time.
        sent: The bytes that the rank which sends most has sent.

    Example:
        >>> Score(time=60.0, memory=24_576, sent=18_432).sent
        18432
    """

    time: float
    memory: int
    sent: int


@dataclass(frozen=True)
class Made:
    """A result that is made of parts, such as the gradients of all ranks.

    A check that finds it wrong tries which parts are in it, and says which are missing.

    Attributes:
        make: Takes how often each part is in the result, and gives the result.
        count: How many parts there are.
        what: What the parts are: `gradients`.
        of: Where they come from: `rank`.
    """

    make: Callable[[Sequence[float]], Array]
    count: int
    what: str = "gradients"
    of: str = "rank"


Right = Array | Made | list[Array] | list[Made]


@dataclass
class Instance:
    """The data of a puzzle for some number of ranks.

    Attributes:
        given: For each rank what it begins with, by name: matrices, lists or dicts of matrices, and
            whatever else it is told.
        expected: For each rank what it has to keep, by name: a matrix, or a list of matrices; or in
            the place of a matrix how it is made.
    """

    given: Sequence[Mapping[str, Any]]
    expected: Sequence[Mapping[str, Right]]

    def of_rank(self, rank: int, gift: Callable[[str, Array], Any]) -> dict[str, Any]:
        """What a rank begins with: its own copies, with what `gift` makes of names and arrays."""

        def own(name: str, value: Any) -> Any:
            if isinstance(value, list):
                return [own(name, each) for each in value]
            if isinstance(value, dict):
                return {key: own(name, each) for key, each in value.items()}
            return gift(name, value) if isinstance(value, np.ndarray) else copy.deepcopy(value)

        return {name: own(name, value) for name, value in self.given[rank].items()}


def tensors(value: Any) -> list[Array]:
    """The matrices in what a rank is given, or has to keep; none if it is something else."""
    several = list(value.values()) if isinstance(value, dict) else value
    several = several if isinstance(several, list) else [several]
    made = [each.make([1] * each.count) if isinstance(each, Made) else each for each in several]
    return made if all(isinstance(each, np.ndarray) for each in made) else []


@dataclass(frozen=True, kw_only=True, repr=False)
class Puzzle:
    """One puzzle: a task, how it is checked, and what it may cost. It shows itself in a notebook.

    Attributes:
        title: A few words.
        sentence: What is to be done.
        draw: Takes a source of random numbers and a number of ranks, and gives the data of each
            rank, and what each has to keep, computed in one process: a pair of lists with a dict
            for each rank.
        calls: The methods of `me` that it allows, besides `keep` and `free`.
        budgets: What a solution may take, by the numbers of ranks with which it is checked.
        given: What `me` has besides rank and size, by name, in words.
        results: What has to be kept, by name, in words.
        operations: What `me.compute` does: names of operations in puzzles 1 to 11.
        reference: What a good solution takes, by the number of ranks; if not given, the budgets.
        table: Gives for a number of ranks a table that the task speaks of: rows of cells, the
            first row its heading.
        number: Of the eleven puzzles, 1 to 11; else 0.

    Example:
        >>> from distlab import puzzles
        >>> puzzles.PUZZLES[1].title
        'All-reduce from sends'
    """

    title: str
    sentence: str
    draw: Callable[[np.random.Generator, int], Any]
    calls: Sequence[str]
    budgets: Mapping[int, Score]
    given: Mapping[str, str] = field(default_factory=dict)
    results: Mapping[str, str] = field(default_factory=dict)
    operations: Sequence[str] = ()
    reference: Mapping[int, Score] = field(default_factory=dict)
    table: Callable[[int], list[list[str]]] | None = None
    number: int = 0

    def __post_init__(self) -> None:
        known = (*CALLS, *OPERATIONS)
        for name in (*self.calls, *self.operations):
            if name not in known:
                raise ValueError(f"There is no call {name!r}. There are: {', '.join(known)}.")
        object.__setattr__(self, "reference", {**self.budgets, **self.reference})

    @property
    def name(self) -> str:
        """Its number, if it has one, and its title."""
        return f"Puzzle {self.number}, {self.title}" if self.number else self.title

    def task(self, size: int) -> Instance:
        """Draw the data: the same at each check."""
        drawn = self.draw(np.random.default_rng([self.number, size]), size)
        return drawn if isinstance(drawn, Instance) else Instance(*drawn)

    def _limits(self) -> list[list[str]]:
        rows = [["", "time, ticks", "memory, bytes", "sent, bytes"]]
        for size, budget in self.budgets.items():
            for word, score in (("budget", budget), ("reference", self.reference[size])):
                time = amount(score.time)
                rows.append([f"{word}, {size} ranks", time, f"{score.memory:,}", f"{score.sent:,}"])
        return rows

    def _parts(self) -> list[tuple[str, str]]:
        """What is shown, in order: text, and under what it is folded in HTML, if at all."""
        facts = [
            (", ".join(f"me.{name}" for name in names.split(", ")), words)
            for names, words in self.given.items()
        ]
        facts += [(f'me.keep("{name}", ...)', words) for name, words in self.results.items()]
        computes = [
            (f'{each.gives} = me.compute("{each.name}", {", ".join(each.operands)})', each.words)
            for each in (OPERATIONS[name] for name in self.operations)
        ]
        calls = (*(name for name in CALLS if name in self.calls), "free")
        allowed = [_call(name, "groups" in self.given) for name in calls]
        tables = [
            f"With {size} ranks:\n{aligned(rows, right=range(len(rows[0])))}"
            for size, rows in ((size, self.table(size)) for size in self.budgets if self.table)
        ]
        return [
            *((aligned(rows), "") for rows in (facts, computes) if rows),
            (aligned(allowed), f"Allowed: {', '.join(call for call, _ in allowed)}"),
            *((table, "") for table in tables),
            (f"{COSTS}\n\n{aligned(self._limits(), right=(1, 2, 3))}", ""),
        ]

    def __repr__(self) -> str:
        return "\n\n".join([self.name, self.sentence, *(text for text, _ in self._parts())])

    def _repr_html_(self) -> str:
        size = max(self.budgets, key=lambda size: (size % 4 == 0, size))  # four ranks fill a line
        shown = [
            f"<div><b>{escape(self.name)}</b></div><p>{escape(self.sentence)}</p>",
            f"<div>{_picture(self.task(size))}</div>",
        ]
        for text, folded in self._parts():
            pre = f'<pre style="white-space:pre-wrap">{escape(text)}</pre>'
            summary = f"<summary>{escape(folded)}</summary>"
            shown.append(f"<details>{summary}{pre}</details>" if folded else pre)
        return "".join(shown)


def _call(name: str, grouped: bool) -> tuple[str, str]:
    """A method of `me` with its arguments, and what it does."""
    method = getattr(Me, name)
    taken = [each for each in inspect.signature(method).parameters if each != "self"]
    arguments = ", ".join(each for each in taken if grouped or each != "group")
    return f"me.{name}({arguments})", str(inspect.getdoc(method)).partition("\n")[0]


def _picture(task: Instance) -> str:
    """What each rank has at the start and at the goal."""
    goals = [
        {f"{name}'" if name in given else name: value for name, value in expected.items()}
        for given, expected in zip(task.given, task.expected, strict=True)
    ]
    start, end = (
        [[_chip(name, own[name], side) for name in own if tensors(own[name])] for own in side]
        for side in (task.given, goals)
    )
    return pictures.goal(start, end)


def _chip(name: str, value: Any, side: Sequence[Mapping[str, Any]]) -> tuple[str, list[int]]:
    """What a rank has, for the picture: its name, and whose colours it gets.

    What is the same on all ranks has no colour. What is the same on some has the colour of the
    first of them. What is made of parts of all ranks has the colours of all.
    """
    mine, alike = tensors(value), []
    for rank, own in enumerate(side):
        theirs = tensors(own.get(name, []))
        if len(mine) == len(theirs) and all(map(np.array_equal, mine, theirs)):
            alike.append(rank)
    if len(alike) < len(side):
        return f"{name} {alike[0]}", alike[:1]
    first = value[0] if isinstance(value, list) else value
    summed = isinstance(first, Made) and (first.of, first.count) == ("rank", len(side))
    return name, alike if summed else []
