"""Where every slice of a tensor lives, for Keras, JAX, TensorFlow DTensor and PyTorch alike.

`layout_of` reads an object of any of them into one neutral view, `draw` makes a picture of it.
Nothing here imports a framework that the object did not come from.
"""

from distlab.layout_drawing import Drawing, draw
from distlab.layout_readers import layout_of, mesh_of
from distlab.layout_view import Layout, Mesh

__all__ = ["Drawing", "Layout", "Mesh", "draw", "layout_of", "mesh_of"]
