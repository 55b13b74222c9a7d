"""What `show` shows: the task of a puzzle, what it allows at which cost, its budgets, its stub."""

from html import escape
from inspect import getdoc

from distlab.puzzles import goals
from distlab.puzzles.arithmetic import OPERATIONS
from distlab.puzzles.clock import BYTES, FLOPS, LATENCY
from distlab.puzzles.pictures import amount
from distlab.puzzles.puzzle import COLLECTIVES, Puzzle
from distlab.puzzles.ranks import Me
from distlab.text_tables import aligned, html_table

_CALLS = {
    "add": "me.add(a, b)",
    "split": "me.split(x, parts)",
    "join": "me.join(parts)",
    "send": "me.send(to, x)",
    "receive": "me.receive(source)",
    "all_reduce": "me.all_reduce(x)",
    "reduce_scatter": "me.reduce_scatter(x)",
    "all_gather": "me.all_gather(x)",
    "all_to_all": "me.all_to_all(parts)",
    "free": "me.free(x)",
}
_OPERATIONS = {
    "backward": ("dx, dw", "the gradients of forward"),
    "linear_backward": ("dx, dw", "the gradients of linear"),
    "backward_input": ("dx", "the dx of backward alone"),
    "backward_weight": ("dw", "the dw of backward alone"),
    "forward": ("y", "tanh(x @ w)"),
    "linear": ("y", "x @ w"),
    "expert": ("y", "tanh(x @ w)"),
    "loss": ("dy", "y - target"),
    "update": ("w", "a step of gradient descent"),
    "adam": ("w, m, v", "a step of Adam"),
    "attend": ("partial", "the attention of q to these rows of k and v, as sums"),
    "merge": ("partial", "two partial results of the same q as one"),
    "finish": ("out", "the sums of a partial result, divided"),
}
COSTS = (
    f"A tick is {FLOPS:,} FLOPs, or {BYTES:,} bytes on a link; a message takes {LATENCY:g} tick "
    "more."
)


class Shown:
    """The task of a puzzle, which shows itself as the last line of a cell.

    Args:
        puzzle: Which.
    """

    def __init__(self, puzzle: Puzzle) -> None:
        self._puzzle = puzzle

    def _limits(self) -> list[list[str]]:
        rows = [["", "time, ticks", "memory, bytes", "sent, bytes"]]
        for size in self._puzzle.sizes:
            for word, score in (
                (f"budget, {size} ranks", self._puzzle.budgets[size]),
                (f"reference, {size} ranks", self._puzzle.reference[size]),
            ):
                rows.append([word, amount(score.time), f"{score.memory:,}", f"{score.sent:,}"])
        return rows

    def _given(self) -> list[tuple[str, str]]:
        """What each rank begins with: names and words."""
        return [
            (", ".join(f"me.{each}" for each in name.split(", ")), words)
            for name, words in self._puzzle.given.items()
        ]

    def _wanted(self) -> list[tuple[str, str]]:
        """What each rank has to keep: calls and words."""
        return [(f'me.keep("{name}", ...)', words) for name, words in self._puzzle.results.items()]

    def _operations(self) -> list[tuple[str, str]]:
        rows = []
        for name in self._puzzle.operations:
            operation = OPERATIONS[name]
            result, meaning = _OPERATIONS[name]
            call = f'{result} = me.compute("{name}", {", ".join(operation.operands)})'
            rows.append((call, f"{meaning}; {operation.price}"))
        return rows

    def _calls(self) -> list[tuple[str, str]]:
        """What else is allowed, each call with the first line of its description."""
        rows = []
        for name, call in _CALLS.items():
            if name in (*self._puzzle.calls, "free"):
                grouped = name in COLLECTIVES and "groups" in self._puzzle.given
                shown = call.replace(")", ", group=ranks)") if grouped else call
                rows.append((shown, str(getdoc(getattr(Me, name))).partition("\n")[0]))
        return rows

    def __repr__(self) -> str:
        puzzle = self._puzzle
        facts = aligned([list(fact) for fact in (*self._given(), *self._wanted())])
        operations = aligned([list(row) for row in self._operations()]) if puzzle.operations else ""
        limits = aligned(self._limits(), right=(1, 2, 3))
        parts = [
            f"Puzzle {puzzle.number}, {puzzle.title}",
            puzzle.sentence,
            facts,
            *filter(None, [operations]),
            aligned([list(row) for row in self._calls()]),
            COSTS,
            limits,
            puzzle.stub.rstrip(),
        ]
        return "\n\n".join(parts)

    def _repr_html_(self) -> str:
        puzzle = self._puzzle
        lists = (
            ("You have:", self._given()),
            ("You keep:", self._wanted()),
            ("You compute:", self._operations()),
        )
        facts = "".join(f"<div>{word}</div><ul>{_items(rows)}</ul>" for word, rows in lists if rows)
        calls, allowed = _items(self._calls()), ", ".join(call for call, _ in self._calls())
        rows = self._limits()
        return "".join(
            [
                f"<div><b>Puzzle {puzzle.number}, {escape(puzzle.title)}</b></div>",
                f"<p>{escape(puzzle.sentence)}</p>",
                f"<div>{goals.picture(puzzle.number)}</div>",
                facts,
                f"<details><summary>Allowed: <code>{escape(allowed)}</code></summary>",
                f"<ul>{calls}</ul></details><p>{escape(COSTS)}</p>",
                html_table(rows[0], rows[1:], right=(1, 2, 3)),
                f"<details><summary>Stub</summary><pre>{escape(puzzle.stub.rstrip())}</pre></details>",
            ]
        )


def _items(rows: list[tuple[str, str]]) -> str:
    """Rows of code and words as a list in HTML."""
    return "".join(f"<li><code>{escape(code)}</code>: {escape(words)}</li>" for code, words in rows)
