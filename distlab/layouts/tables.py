"""Every variable of a model in one table: its layout, its bytes, the rule that laid it out."""

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

from distlab.errors import brief
from distlab.layouts.rules import current_layout_map, read_rules
from distlab.layouts.variables import Variable, variables_of
from distlab.layouts.words import bytes_text, in_few_words
from distlab.phrases import said
from distlab.tables import aligned, html_table

_HEADS = ("variable", "shape", "layout", "per device", "in full", "rule")
_SHOWN = 100  # rows; of more, the rest is counted


@dataclass(frozen=True)
class Table:
    """The variables of a model. A notebook shows it as a table.

    Attributes:
        rows: One for each variable. The first 100 are shown; the totals count all.
        idle: The rules that match none of them.
    """

    rows: tuple[Variable, ...]
    idle: tuple[str, ...] = ()

    @property
    def bytes_by_device(self) -> dict[str, int]:
        """For each device, the bytes of all slices on it."""
        held: Counter[str] = Counter()
        for row in self.rows:
            if row.layout:
                held.update(row.layout.bytes_by_device)
        return held

    def __getitem__(self, path: str) -> Variable:
        return {row.path: row for row in self.rows}[path]

    def _cells(self) -> list[tuple[str, ...]]:
        cells = [_cells_of(row) for row in self.rows[:_SHOWN]]
        if len(self.rows) > _SHOWN:
            cells.append((f"and {len(self.rows) - _SHOWN} more", "", "", "", "", ""))
        if self.idle:
            cells.append(("nothing: see layouts.lint", "", "", "", "", ", ".join(self.idle)))
        if held := self.bytes_by_device.values():
            devices = f"{len(held)} device{' holds' if len(held) == 1 else 's hold'}"
            whole = sum(row.layout.bytes_total or 0 for row in self.rows if row.layout)
            sizes = bytes_text(max(held)), bytes_text(whole)
            cells.append(("total", "", f"{devices} {bytes_text(sum(held))}", *sizes, ""))
        return cells

    def __repr__(self) -> str:
        return aligned([_HEADS, *self._cells()], right=(3, 4))

    def _repr_html_(self) -> str:
        heads, *rows = [[said(cell) for cell in row] for row in (_HEADS, *self._cells())]
        return html_table(heads, rows, right=(3, 4), last_bold=bool(self.bytes_by_device))


@brief
def table(model: Any, layout_map: Any = None) -> Table:
    """Make a table of the variables of a model and where they are.

    Args:
        model: A Keras or tf_keras model or layer, a PyTorch module, or variables: a dict by
            name, or a list such as `model.variables + model.optimizer.variables`.
        layout_map: The LayoutMap whose rules to name. The default for Keras is the one of the
            distribution that is set.

    Returns:
        The table. `table["d1/kernel"].layout` is one variable's layout, and
        `table.bytes_by_device` what each device holds.

    Raises:
        TypeError: If `model` is not one, or something in it is no variable.
        ValueError: If it has no variables yet, or a failed training step has lost their values.
    """
    variables = variables_of(model)
    if layout_map is None and any(variable.framework == "keras" for variable in variables):
        layout_map, _ = current_layout_map()
    idle: dict[str, None] = {}
    if layout_map is not None:
        rules = read_rules(layout_map)
        idle = dict.fromkeys(rule.key for rule in rules.rules)
        for i, each in enumerate(variables):
            keys = [rule.key for rule in rules.matching(each.path)]
            idle = {key: None for key in idle if key not in keys}
            variables[i] = replace(each, rule=", ".join(keys))
    return Table(tuple(variables), tuple(idle))


def _cells_of(variable: Variable) -> tuple[str, ...]:
    path, shape, layout = variable.path, str(list(variable.shape)), variable.layout
    if layout is None:
        return path, shape, "not distributed", "", "", variable.rule
    sizes = (layout.bytes_per_device, layout.bytes_total)
    texts = ("" if size is None else bytes_text(size) for size in sizes)
    return path, shape, in_few_words(layout), *texts, variable.rule
