"""Every variable of a model in one table: its layout, its bytes, the rule that laid it out."""

from dataclasses import dataclass
from typing import Any

from distlab.errors import of_type
from distlab.layouts.rules import current_layout_map, read_rules
from distlab.layouts.variables import variables_of
from distlab.layouts.view import Layout
from distlab.layouts.words import bytes_text, in_few_words
from distlab.tables import aligned, html_table

HEADS = ("variable", "shape", "layout", "per device", "in full", "rule")
PLAIN = "not distributed"


@dataclass(frozen=True)
class Row:
    """One variable.

    Attributes:
        path: Its name.
        shape: Its shape.
        layout: Where its slices are; None for a plain variable on one device, such as a
            PyTorch parameter that is no DTensor.
        rule: The key of the rule that matched, an empty string if none did.
    """

    path: str
    shape: tuple[int, ...]
    layout: Layout | None
    rule: str = ""

    def cells(self) -> tuple[str, ...]:
        """Return the row as text."""
        if self.layout is None:
            return (self.path, str(list(self.shape)), PLAIN, "", "", self.rule)
        sizes = (self.layout.bytes_per_device, self.layout.bytes_total)
        texts = ("" if size is None else bytes_text(size) for size in sizes)
        return (self.path, str(list(self.shape)), in_few_words(self.layout), *texts, self.rule)


@dataclass(frozen=True)
class Table:
    """The variables of a model. A notebook shows it as a table.

    Attributes:
        rows: One for each variable.
        shown: How many of them to show; the totals count all.
    """

    rows: tuple[Row, ...]
    shown: int = 100

    @property
    def bytes_by_device(self) -> dict[str, int]:
        """For each device, the bytes of all slices on it."""
        held: dict[str, int] = {}
        for row in self.rows:
            for device, size in row.layout.bytes_by_device.items() if row.layout else ():
                held[device] = held.get(device, 0) + size
        return held

    def __getitem__(self, path: str) -> Row:
        for row in self.rows:
            if row.path == path:
                return row
        raise KeyError(path)

    def _cells(self) -> list[tuple[str, ...]]:
        cells = [row.cells() for row in self.rows[: self.shown]]
        if len(self.rows) > self.shown:
            cells.append((f"and {len(self.rows) - self.shown} more", "", "", "", "", ""))
        if held := self.bytes_by_device.values():
            devices = f"{len(held)} device{' holds' if len(held) == 1 else 's hold'}"
            whole = sum(row.layout.bytes_total or 0 for row in self.rows if row.layout)
            sizes = bytes_text(max(held)), bytes_text(whole)
            cells.append(("total", "", f"{devices} {bytes_text(sum(held))}", *sizes, ""))
        return cells

    def __repr__(self) -> str:
        return aligned([HEADS, *self._cells()], right=(3, 4))

    def _repr_html_(self) -> str:
        return html_table(HEADS, self._cells(), right=(3, 4), last_bold=bool(self.bytes_by_device))


def table(model: Any, layout_map: Any = None, *, shown: int = 100) -> Table:
    """Make a table of the variables of a model and where they are.

    Args:
        model: A Keras or tf_keras model or layer, a PyTorch module, or variables: a dict by
            name, or a list such as `model.variables + model.optimizer.variables`.
        layout_map: The LayoutMap whose rules to name. The default for Keras is the one of the
            distribution that is set.
        shown: How many rows to show.

    Returns:
        The table. `table["d1/kernel"].layout` is one variable's layout, and
        `table.bytes_by_device` what each device holds.

    Raises:
        TypeError: If `model` is not one, or something in it is no variable.
        ValueError: If it has no variables yet, or `shown` is no number of rows.
    """
    if isinstance(shown, bool) or not isinstance(shown, int) or shown < 0:
        raise ValueError(f"shown must be a number of rows, 0 or more, not {of_type(shown)}.")
    variables = variables_of(model)
    if layout_map is None and any(variable.framework == "keras" for variable in variables):
        layout_map, _ = current_layout_map()
    rules = None if layout_map is None else read_rules(layout_map)
    rows = []
    for each in variables:
        keys = [rule.key for rule in rules.matching(each.path)] if rules else []
        rows.append(Row(each.path, each.shape, each.layout, ", ".join(keys)))
    return Table(tuple(rows), shown)
