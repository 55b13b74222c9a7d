"""What `show` shows: the task of a puzzle, what it allows at which cost, its budgets, its stub."""

from html import escape

from distlab.puzzles import goals
from distlab.puzzles.arithmetic import OPERATIONS
from distlab.puzzles.clock import BYTES, FLOPS, LATENCY
from distlab.puzzles.pictures import amount
from distlab.puzzles.puzzle import Puzzle
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
}
_RESULTS = {
    "backward": "dx, dw",
    "linear_backward": "dx, dw",
    "backward_input": "dx",
    "backward_weight": "dw",
    "forward": "y",
    "linear": "y",
    "expert": "y",
    "loss": "dy",
    "update": "w",
    "adam": "w, m, v",
    "attend": "partial",
    "merge": "partial",
    "finish": "out",
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
        rows = [["", "time, ticks", "memory of a rank, bytes", "sent by a rank, bytes"]]
        for size in self._puzzle.sizes:
            for word, score in (
                (f"budget, {size} ranks", self._puzzle.budgets[size]),
                (f"reference, {size} ranks", self._puzzle.reference[size]),
            ):
                rows.append([word, amount(score.time), f"{score.memory:,}", f"{score.sent:,}"])
        return rows

    def _facts(self) -> list[tuple[str, str]]:
        """What is given, wanted and allowed: names and words."""
        puzzle = self._puzzle
        facts = [
            (", ".join(f"me.{each}" for each in name.split(", ")), words)
            for name, words in puzzle.given.items()
        ]
        facts += [(f'me.keep("{name}", ...)', words) for name, words in puzzle.results.items()]
        return facts

    def _operations(self) -> list[tuple[str, str]]:
        rows = []
        for name in self._puzzle.operations:
            operation = OPERATIONS[name]
            call = f'{_RESULTS[name]} = me.compute("{name}", {", ".join(operation.operands)})'
            rows.append((call, f"{operation.price} FLOPs"))
        return rows

    def _calls(self) -> str:
        calls = [call for name, call in _CALLS.items() if name in self._puzzle.calls]
        return ", ".join([*calls, "me.free(x)"])

    def __repr__(self) -> str:
        puzzle = self._puzzle
        facts = aligned([list(fact) for fact in self._facts()])
        operations = aligned([list(row) for row in self._operations()]) if puzzle.operations else ""
        limits = aligned(self._limits(), right=(1, 2, 3))
        parts = [
            f"Puzzle {puzzle.number}, {puzzle.title}",
            puzzle.sentence,
            facts,
            *filter(None, [operations]),
            f"Allowed: {self._calls()}. {COSTS}",
            limits,
            puzzle.stub.rstrip(),
        ]
        return "\n\n".join(parts)

    def _repr_html_(self) -> str:
        puzzle = self._puzzle
        facts = "".join(
            f"<li><code>{escape(name)}</code>: {escape(words)}</li>"
            for name, words in self._facts()
        )
        operations = "".join(
            f"<li><code>{escape(call)}</code>: {escape(price)}</li>"
            for call, price in self._operations()
        )
        rows = self._limits()
        return "".join(
            [
                f"<div><b>Puzzle {puzzle.number}, {escape(puzzle.title)}</b></div>",
                f"<p>{escape(puzzle.sentence)}</p>",
                f"<div>{goals.picture(puzzle.number)}</div>",
                f"<ul>{facts}{operations}</ul>",
                f"<p>Allowed: <code>{escape(self._calls())}</code>. {escape(COSTS)}</p>",
                html_table(rows[0], rows[1:], right=(1, 2, 3)),
                f"<pre>{escape(puzzle.stub.rstrip())}</pre>",
            ]
        )
