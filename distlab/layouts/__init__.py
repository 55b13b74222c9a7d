"""Where every slice of a tensor lives, for Keras, JAX, TensorFlow DTensor and PyTorch alike.

`layout_of` reads an object of any of them into one neutral view, and `draw` makes a picture of
it. `table` lists a model's variables, `lint` finds the layout rules that do not do what they look
like, and `check_layouts` does so in a test. Nothing here imports a framework that the object did
not come from.
"""

from distlab.layouts.drawing import Drawing, draw
from distlab.layouts.findings import Finding, LayoutError, Report
from distlab.layouts.linting import check_layouts, lint
from distlab.layouts.readers import layout_of, mesh_of
from distlab.layouts.tables import Table, table
from distlab.layouts.variables import Variable
from distlab.layouts.view import Layout, Mesh

__all__ = [
    "Drawing",
    "Finding",
    "Layout",
    "LayoutError",
    "Mesh",
    "Report",
    "Table",
    "Variable",
    "check_layouts",
    "draw",
    "layout_of",
    "lint",
    "mesh_of",
    "table",
]


def __dir__() -> list[str]:
    return list(__all__)
