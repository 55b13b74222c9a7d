"""Which lines of a notebook draw with Matplotlib, and whether a cell trains: read, not run."""

import ast
from collections.abc import Iterable, Iterator

# What functions that plot call their arguments.
ARGUMENTS = frozenset({"ax", "axes", "axis", "fig", "figure"})
TRAINS = frozenset(
    {
        "Popen",
        "apply_gradients",
        "backward",
        "fit",
        "minimize",
        "start_processes",
        "train_on_batch",
        "value_and_grad",
    }
)
"""Calls that train, or start processes."""
STARTS = frozenset({"distlab.launch", "distlab.run"})


def root(node: ast.AST) -> str | None:
    """Returns the name that a chain of attributes, calls and indices begins with.

    Example:
        >>> root(ast.parse("axes[0].text(1)", mode="eval").body)
        'axes'
    """
    while isinstance(node, ast.Attribute | ast.Call | ast.Subscript | ast.Starred):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else None


def _names(target: ast.AST) -> Iterator[str]:
    return (node.id for node in ast.walk(target) if isinstance(node, ast.Name))


class Plotting(ast.NodeVisitor):
    r"""Follows Matplotlib's objects through the cells of a notebook.

    Example:
        >>> plotting = Plotting()
        >>> plotting.lines(ast.parse("import matplotlib.pyplot as plt"))
        set()
        >>> plotting.lines(ast.parse("figure, axis = plt.subplots()\naxis.plot([1])"))
        {1, 2}
    """

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._lines: set[int] = set()

    def lines(self, tree: ast.Module) -> set[int]:
        """Returns the numbers of the lines of the next cell that call Matplotlib."""
        self._lines = set()
        self.visit(tree)
        return self._lines

    def visit_Import(self, node: ast.Import) -> None:
        """Learns `plt`."""
        for alias in node.names:
            if alias.name.split(".")[0] == "matplotlib":
                self._known.add(alias.asname or "matplotlib")

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        """Learns what comes from one of Matplotlib's modules."""
        if (node.module or "").split(".")[0] == "matplotlib":
            self._known.update(alias.asname or alias.name for alias in node.names)

    def visit_Assign(self, node: ast.Assign) -> None:
        """Learns the names of figures and axes, and forgets what is bound to something else."""
        self.generic_visit(node)
        for target in node.targets:
            if isinstance(target, ast.Name | ast.Tuple | ast.List):
                self._bind(target, node.value)

    def visit_For(self, node: ast.For) -> None:
        """Learns the name of each of several axes."""
        self._loop(node.target, node.iter)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        """Does the same where the loop is in brackets."""
        self._loop(node.target, node.iter)
        self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        """Takes a function's arguments by their names; what it binds is its own."""
        before = self._known
        arguments = {argument.arg for argument in ast.walk(node) if isinstance(argument, ast.arg)}
        self._known = (before - arguments) | (arguments & ARGUMENTS)
        self.generic_visit(node)
        self._known = before

    def visit_Call(self, node: ast.Call) -> None:
        """Counts the lines of a call to Matplotlib."""
        if root(node.func) in self._known:
            self._lines.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        self.generic_visit(node)

    def _bind(self, target: ast.AST, value: ast.AST) -> None:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            for part, its_value in zip(target.elts, value.elts, strict=False):
                self._bind(part, its_value)
        elif root(value) in self._known:
            self._known.update(_names(target))
        else:
            self._known.difference_update(_names(target))

    def _loop(self, target: ast.AST, over: ast.AST) -> None:
        if isinstance(over, ast.Tuple | ast.List):
            for element in over.elts:
                self._bind(target, element)
            return
        called = root(over.func) if isinstance(over, ast.Call) else None
        if (
            not isinstance(over, ast.Call)
            or not isinstance(target, ast.Tuple)
            or called not in ("zip", "enumerate")
        ):
            self._bind(target, over)
            return
        parts = target.elts[1:] if called == "enumerate" else target.elts
        for part, argument in zip(parts, over.args, strict=False):
            self._bind(part, argument)


def trains(trees: Iterable[ast.Module]) -> bool:
    """Tells whether the cells train something or start ranks when they run.

    A function that trains counts where it is used, not where it is written.

    Example:
        >>> trains([ast.parse("def go(model): model.fit(x)")])
        False
        >>> trains([ast.parse("def go(model): model.fit(x)"), ast.parse("go(model)")])
        True
    """
    functions: set[str] = set()

    def does(node: ast.AST) -> bool:
        for part in ast.walk(node):
            if isinstance(part, ast.Name) and part.id in functions:
                return True
            if isinstance(part, ast.Call):
                called = ast.unparse(part.func)
                if called in STARTS or called.split(".")[-1] in TRAINS:
                    return True
        return False

    for tree in trees:
        for statement in tree.body:
            if isinstance(statement, ast.FunctionDef | ast.ClassDef):
                if does(statement):
                    functions.add(statement.name)
            elif does(statement):
                return True
    return False
