"""Meshes and layouts as pictures: SVG in a notebook, text elsewhere."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from distlab.errors import brief, of_type
from distlab.layouts import svg, words
from distlab.layouts.mesh_picture import mesh_picture
from distlab.layouts.readers import is_mesh, layout_of, mesh_of
from distlab.layouts.tables import Table, table
from distlab.layouts.tensor_picture import tensor_picture
from distlab.layouts.variables import is_model
from distlab.layouts.view import Mesh
from distlab.phrases import is_english, said


@dataclass(frozen=True)
class Drawing:
    """A picture that a notebook shows, and a terminal prints as text.

    Attributes:
        svg: The picture, a complete SVG document.
        text: The same in words.
    """

    svg: str
    text: str

    def _repr_html_(self) -> str:
        return svg.image(self.svg, self.text.partition("\n")[0])

    def __repr__(self) -> str:
        return self.text


@brief
def draw(*objects: Any, title: str | Sequence[str] | None = None) -> Drawing | Table:
    """Draw meshes and layouts, side by side when there are several; a model is shown as its table.

    A layout is drawn as its tensor, cut into slices with the devices that hold them, and as the
    mesh, each device in the colour of the slice it holds. Devices of one colour hold copies of
    the same slice. A mesh alone is drawn as its devices in a grid. What still has to be added up
    (PyTorch's `Partial`) is drawn as its summands, each on the devices that hold it.

    Args:
        *objects: One or more meshes, or whatever `layout_of` reads without a shape, such as its
            result with one. Or one model, without a title, as `table` takes it.
        title: What to write above the drawing; a list of titles for several. The default is
            the variable's path, or the type and shape.

    Returns:
        The drawing, or the table; it shows itself as the last expression of a notebook cell.

    Raises:
        TypeError: If an object has no layout (see `layout_of`), or there is none; if `title` is
            no text.
        ValueError: If there are more or fewer titles than objects.

    Example:
        >>> mesh = Mesh((("data", 2), ("model", 2)), ("cpu:0", "cpu:1", "cpu:2", "cpu:3"))
        >>> draw(mesh)
        mesh of 4 devices: data=2, model=2
                model 0  model 1
        data 0  cpu:0    cpu:1
        data 1  cpu:2    cpu:3
    """
    if not objects:
        raise TypeError("draw() needs at least one mesh, or array, variable or sharding.")
    if len(objects) == 1 and title is None and is_model(objects[0]):
        return table(objects[0])
    titles: Sequence[str | None] | None = [title] if isinstance(title, str) else title
    if titles is None:
        titles = [None] * len(objects)
    if not isinstance(titles, Sequence) or not all(isinstance(t, str | None) for t in titles):
        raise TypeError(f"title must be a string, or a list of strings, not {of_type(title)}.")
    if len(titles) != len(objects):
        raise ValueError(f"{len(objects)} objects were given, but {len(titles)} titles.")
    views = [mesh_of(obj) if is_mesh(obj) else layout_of(obj) for obj in objects]
    pictures, texts = [], []
    for view, heading in zip(views, titles, strict=True):
        if isinstance(view, Mesh):
            pictures.append(_captioned(heading or str(view), [mesh_picture(view)], []))
            text = words.mesh_text(view)
        else:
            blocks = [tensor_picture(view)]
            if len(view.mesh.devices) > 1:
                blocks.append(mesh_picture(view.mesh, view))
            caption = [said(words.sentence(view)), said(words.share(view))]
            pictures.append(_captioned(heading or words.kind(view), blocks, caption))
            text = words.layout_text(view)
        texts.append(f"{heading}\n{text}" if heading else text)
    whole = "\n\n".join(texts)
    picture = svg.in_rows(pictures, gap=16)
    return Drawing(svg.document(picture, whole.partition("\n")[0]), whole)


def _captioned(heading: str, blocks: Sequence[svg.Picture], caption: Sequence[str]) -> svg.Picture:
    body = svg.in_rows(blocks, gap=26)
    width = max(body.width, svg.text_width(heading, 13) + 8, 240 if caption else 0)
    most = max(30, int(width / 6.4)) if is_english() else max(24, int(width / 10))
    lines = [line for part in caption for line in textwrap.wrap(part, most)]
    bold = 'font-size="13" font-weight="600"'
    end = 26 + body.height
    elements = [svg.text(0, 12, heading, more=bold), body.at(0, 26)]
    elements += [svg.text(0, end + 16 * i, line) for i, line in enumerate(lines, 1)]
    return svg.Picture(tuple(elements), width, end + 16 * len(lines) + 2)
