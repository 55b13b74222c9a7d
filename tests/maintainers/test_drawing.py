"""Drawings: nothing outside its box, every device where it belongs, the same text every time.

And plots, which are shown beside them on light and on dark pages.
"""

import base64
import html
import io
import math
import re
import subprocess
import sys
import xml.etree.ElementTree as ET

import matplotlib as mpl
import matplotlib.pyplot as plt
import nbformat
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nbclient import NotebookClient

from distlab import layouts
from distlab.layouts import svg
from distlab.layouts.blocks import CHIPS
from distlab.layouts.tables import short_words
from distlab.layouts.tints import Tints
from distlab.layouts.torch_reader import _place
from distlab.layouts.view import Layout, Mesh, split
from distlab.lessons.plots.style import STYLE

SVG = "{http://www.w3.org/2000/svg}"


def mesh(**axes: int) -> Mesh:
    count = math.prod(axes.values())
    return Mesh(tuple(axes.items()), tuple(f"cpu:{i}" for i in range(count)))


EIGHT = mesh(data=2, model=4)


class Replicate:
    """Says what a PyTorch placement says."""

    def is_partial(self) -> bool:
        return False

    def is_replicate(self) -> bool:
        return True


class Shard:
    """Says what a PyTorch placement says."""

    def __init__(self, dim: int) -> None:
        self.dim = dim

    def is_partial(self) -> bool:
        return False

    def is_replicate(self) -> bool:
        return False


@st.composite
def any_layout(draw) -> Layout:
    """Meshes of one to three axes and 1 to 64 devices, tensors of none to four dimensions."""
    names = ("pipe", "data", "model")[: draw(st.integers(1, 3))]
    sizes: list[int] = []
    for _ in names:
        sizes.append(draw(st.integers(1, 64 // math.prod(sizes))))
    view = mesh(**dict(zip(names, sizes, strict=True)))
    rank = draw(st.integers(0, 4))
    spec: list[list[str]] = [[] for _ in range(rank)]
    for name in draw(st.permutations(names)):
        where = draw(st.sampled_from([None, *range(rank)]))
        if where is not None:
            spec[where].append(name)
    shape = [
        math.prod(view.size(axis) for axis in axes) * draw(st.integers(1, 300)) for axes in spec
    ]
    return split(shape, view, spec, dtype=draw(st.sampled_from(["float32", None])))


def elements(drawing: layouts.Drawing) -> tuple[ET.Element, list[tuple[ET.Element, float, float]]]:
    """The document, and each rectangle and text with where its group has moved it."""
    root = ET.fromstring(drawing.svg)
    found = []

    def walk(node: ET.Element, x: float, y: float) -> None:
        move = node.get("transform", "translate(0,0)")
        dx, dy = (float(n) for n in move.removeprefix("translate(").rstrip(")").split(","))
        if node.tag in (SVG + "rect", SVG + "text"):
            found.append((node, x + dx + float(node.get("x")), y + dy + float(node.get("y"))))
        for child in node:
            walk(child, x + dx, y + dy)

    walk(root, 0, 0)
    return root, found


def boxes(drawing: layouts.Drawing) -> list[tuple[float, float, float, float, str]]:
    _, found = elements(drawing)
    return [
        (x, y, x + float(node.get("width")), y + float(node.get("height")), node.get("fill"))
        for node, x, y in found
        if node.tag == SVG + "rect"
    ]


@settings(max_examples=150, deadline=None)
@given(layout=any_layout())
def test_everything_is_in_the_picture_and_every_device_is_named(layout):
    drawing = layouts.draw(layout)
    root, found = elements(drawing)
    width, height = float(root.get("width")), float(root.get("height"))
    assert width <= svg.WIDTH + 2 * svg.MARGIN or max(layout.num_slices, layout.mesh.shape[-1]) > 16
    for x0, y0, x1, y1, _ in boxes(drawing):
        assert 0 <= x0 <= x1 <= width
        assert 0 <= y0 <= y1 <= height
    for node, x, y in found:
        if node.tag == SVG + "text":
            size = svg.text_width(node.text or "", 9)  # rather less than it may take
            left = {None: x, "middle": x - size / 2, "end": x - size}[node.get("text-anchor")]
            assert left >= -2
            assert left + size <= width + 2
            assert 0 <= y <= height
    names = [node.text for node, _, _ in found if node.tag == SVG + "text"]
    if len(layout.mesh.devices) > 1:
        assert set(layout.mesh.short_labels()) <= set(names)


@settings(max_examples=100, deadline=None)
@given(layout=any_layout())
def test_cells_do_not_overlap_and_chips_lie_in_their_cells(layout):
    everything = boxes(layouts.draw(layout))
    chips = [box for box in everything if box[4] == "#fff"]
    cells = [box for box in everything if box[4] != "#fff"]
    for i, (ax0, ay0, ax1, ay1, _) in enumerate(cells):
        for bx0, by0, bx1, by1, _ in cells[i + 1 :]:
            assert ax1 <= bx0 or bx1 <= ax0 or ay1 <= by0 or by1 <= ay0
    for x0, y0, x1, y1, _ in chips:
        assert any(x0 >= c[0] and x1 <= c[2] and y0 >= c[1] and y1 <= c[3] for c in cells)
    if layout.copies <= CHIPS and all(len(layout.cuts(d)) <= 16 for d in range(len(layout.shape))):
        assert len(chips) == len(layout.mesh.devices)


@settings(max_examples=100, deadline=None)
@given(layout=any_layout())
def test_devices_have_one_colour_exactly_when_they_hold_copies(layout):
    _, found = elements(layouts.draw(layout))
    count = len(layout.mesh.devices)
    if count == 1:
        return
    fills = [node.get("fill") for node, _, _ in found if node.get("rx") == "5"]
    assert len(fills) == count
    for i in range(count):
        for j in range(i):
            assert (fills[i] == fills[j]) == (layout.bounds[i] == layout.bounds[j])


@settings(max_examples=30, deadline=None)
@given(layout=any_layout())
def test_drawings_are_the_same_every_time_and_small(layout):
    one, two = layouts.draw(layout), layouts.draw(layout)
    assert one == two
    assert repr(one) == one.text
    assert len(one.svg) < 3_000 + 450 * len(layout.mesh.devices)
    assert len(one.text.splitlines()) <= 20


def test_eight_devices_take_a_few_kilobytes():
    assert len(layouts.draw(split((784, 512), EIGHT, [(), ("model",)])).svg) < 4_500


def test_another_process_draws_the_same():
    code = """
from distlab.layouts.view import Mesh, split
from distlab import layouts
mesh = Mesh((("data", 2), ("model", 4)), tuple(f"cpu:{i}" for i in range(8)))
print(layouts.draw(split((784, 512), mesh, [("data",), ("model",)])).svg, end="")
"""
    runs = {
        subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout
        for _ in range(2)
    }
    assert runs == {layouts.draw(split((784, 512), EIGHT, [("data",), ("model",)])).svg.encode()}


def test_text_of_a_layout():
    layout = split((784, 512), EIGHT, [(), ("model",)], dtype="float32", name="d1/kernel")
    assert repr(layouts.draw(layout)) == (
        "d1/kernel  float32[784, 512] on 8 devices: data=2, model=4\n"
        "Dimension 0 not sharded, dimension 1 sharded 4 ways over model, each slice on 2 devices.\n"
        "Each device holds [784, 128]: 392 KiB of 1,568 KiB.\n"
        "  [:, 0:128]    cpu:0, cpu:4\n"
        "  [:, 128:256]  cpu:1, cpu:5\n"
        "  [:, 256:384]  cpu:2, cpu:6\n"
        "  [:, 384:512]  cpu:3, cpu:7"
    )


def test_text_of_a_mesh():
    assert repr(layouts.draw(mesh(pipe=2, data=1, model=2))) == (
        "mesh of 4 devices: pipe=2, data=1, model=2\n"
        "                model 0  model 1\n"
        "pipe 0, data 0  cpu:0    cpu:1\n"
        "pipe 1, data 0  cpu:2    cpu:3"
    )


def test_text_of_a_scalar_and_of_one_device():
    assert "[...]  cpu:0, cpu:1" in repr(layouts.draw(split((), EIGHT, [], dtype="int32")))
    alone = layouts.draw(split((3,), Mesh((), ("cpu:0",)), [], dtype="float32"))
    assert repr(alone) == (
        "float32[3] on 1 device: cpu:0\n"
        "On one device.\n"
        "The device holds all of it: 12 B.\n"
        "  [:]  cpu:0"
    )


def test_uneven_parts_and_a_device_with_nothing():
    ranks = Mesh((("tp", 4),), tuple(f"rank {i}" for i in range(4)))
    layout = _place(ranks, [Shard(0)], (5, 3), "float32")
    assert layout.words == (
        "dimension 0 sharded in 3 unequal parts over tp, dimension 1 not sharded, "
        "each slice on 1 device, 1 device holds nothing"
    )
    drawing = layouts.draw(layout)
    root, _ = elements(drawing)
    assert sum(node.get("stroke-dasharray") is not None for node in root.iter()) == 1
    tall = [y1 - y0 for _, y0, _, y1, fill in boxes(drawing) if fill in svg.TINTS[:3]][:3]
    assert tall[0] == tall[1] > tall[2]


def stripes(drawing: layouts.Drawing) -> list[tuple[float, float, float, float, str]]:
    """The places and colours of what is drawn in a tint, as one list."""
    return [box for box in boxes(drawing) if box[4] in svg.TINTS]


def devices_of(drawing: layouts.Drawing) -> dict[str, set[str]]:
    """For each device in the grids its colours."""
    _, found = elements(drawing)
    tints = stripes(drawing)
    colours: dict[str, set[str]] = {}
    grid = False
    for node, x, y in found:
        if node.tag == SVG + "text":
            grid = (node.text or "").startswith("devices") or (grid and node.text != "tensor")
            inside = {t[4] for t in tints if t[1] < y - 5 < t[3] and t[0] - 13 < x < t[2] + 13}
            if grid and (node.text or "").isdigit():
                colours[node.text] = inside
    return colours


KERNELS = (
    split((784, 10), EIGHT, [("model",)]),
    split((784, 10), mesh(data=1, model=8), [("model",)]),
)


def test_colours_by_a_dimension_are_the_same_in_all_pictures():
    drawing = layouts.draw(*KERNELS, colour_by=0)
    fine = [t for t in stripes(drawing) if t[3] - t[1] > 15]
    tints = list(svg.TINTS)
    held = devices_of(layouts.draw(KERNELS[1], colour_by=0))
    assert held == {str(i): {tints[i]} for i in range(8)}
    # Alone, the coarse layout needs four colours; beside the fine one, each device shows two.
    alone = devices_of(layouts.draw(KERNELS[0], colour_by=0))
    assert alone == {str(i): {tints[i % 4]} for i in range(8)}
    assert {colour for *_, colour in fine} == {*tints}
    _, found = elements(drawing)
    (first, second) = [y for node, _, y in found if node.text == "tensor"]
    in_first = [t for t in stripes(drawing) if first < t[1] < second]
    chips = [t for t in in_first if t[3] - t[1] == 26]  # the height of a device
    assert len(chips) == 16
    by_place = sorted((y, x, colour) for x, y, _, _, colour in chips)
    assert [colour for *_, colour in by_place] == 2 * tints


@settings(max_examples=60, deadline=None)
@given(layout=any_layout(), data=st.data())
def test_stripes_fill_their_boxes_in_the_order_of_the_indices(layout, data):
    if not layout.shape:
        return
    dimension = data.draw(st.integers(-len(layout.shape), len(layout.shape) - 1))
    tints = Tints.along(dimension, [layout])
    assert (tints.limits[0], tints.limits[-1]) == (0, layout.shape[dimension])
    for (bounds, _), found in tints.of(layout).items():
        low, high = bounds[dimension]
        assert sum(room for _, room in found) == high - low
    same = {}
    for (bounds, _), found in tints.of(layout).items():
        assert same.setdefault(bounds[dimension], found) == found
    assert len(set(same.values())) == len(same)


@settings(max_examples=60, deadline=None)
@given(
    st.tuples(*[st.integers(0, 300)] * 2, *[st.integers(1, 300)] * 2),
    st.lists(st.tuples(st.sampled_from(svg.TINTS), st.integers(1, 50)), min_size=1, max_size=9),
    st.booleans(),
)
def test_stripes_lie_side_by_side_in_their_box(box, colours, down):
    root = ET.fromstring(f"<svg>{svg.striped(box, colours, down=down)}</svg>")
    rects = [[int(node.get(k)) for k in ("x", "y", "width", "height")] for node in root]
    fills = [node.get("fill") for node in root]
    assert rects[-1] == list(box)
    if len(colours) == 1:
        assert fills == [colours[0][0]]
        return
    assert fills == [*(colour for colour, _ in colours), "none"]
    start, length = (1, 3) if down else (0, 2)
    position = box[start]
    for place in rects[:-1]:
        assert place[start] == position
        assert [place[1 - start], place[5 - length]] == [box[1 - start], box[5 - length]]
        position += place[length]
    assert position == box[start] + box[length]


def test_what_can_give_no_colours_is_named(subtests):
    vector = split((8,), EIGHT, [("data",)])
    for drawn, by, kind, words in [
        ([vector], "rows", TypeError, "a dimension's number, not 'rows'"),
        ([vector], True, TypeError, "not True of type bool"),
        ([vector], 1, ValueError, r"colour_by=1, but a tensor of shape \[8\]"),
        ([vector, KERNELS[0]], 0, ValueError, "has the sizes 8 and 784"),
        ([EIGHT], 0, ValueError, "a mesh alone"),
    ]:
        with subtests.test(words), pytest.raises(kind, match=words):
            layouts.draw(*drawn, colour_by=by)
    assert layouts.draw(vector, colour_by=-1) == layouts.draw(vector, colour_by=0)


# What still has to be added up.


class Partial:
    """Says what a PyTorch placement says."""

    def is_partial(self) -> bool:
        return True


def ranks(**axes: int) -> Mesh:
    count = math.prod(axes.values())
    return Mesh(tuple(axes.items()), tuple(f"rank {i}" for i in range(count)))


def test_summands_are_drawn_apart():
    layout = _place(ranks(dp=4), [Partial()], (8, 6), "float32")
    drawing = layouts.draw(layout)
    _, found = elements(drawing)
    words = [node.text for node, _, _ in found if node.tag == SVG + "text"]
    assert [word for word in words if word.startswith("summand")] == [
        f"summand {i} of 4" for i in range(4)
    ]
    fills = [node.get("fill") for node, _, _ in found if node.get("rx") == "5"]
    assert fills == list(svg.TINTS[:4])  # nobody holds a copy
    assert len([b for b in boxes(drawing) if b[4] == "#fff"]) == 4
    assert repr(drawing) == (
        "float32[8, 6] on 4 devices: dp=4\n"
        "4 summands of the full size, 1 copy of each, still to be added up over dp.\n"
        "Each device holds a summand of the full size: 192 B.\n"
        "  [:, :]  summand 0 of 4  rank 0\n"
        "  [:, :]  summand 1 of 4  rank 1\n"
        "  [:, :]  summand 2 of 4  rank 2\n"
        "  [:, :]  summand 3 of 4  rank 3"
    )
    alt = html.unescape(re.search('alt="([^"]+)"', drawing._repr_html_())[1])
    assert alt == drawing.text.splitlines()[0]


def test_summands_of_slices_and_their_copies():
    sliced = _place(ranks(dp=2, tp=2), [Partial(), Shard(0)], (8, 6), "float32")
    assert sliced.words == (
        "dimension 0 sharded 2 ways over tp, dimension 1 not sharded, each slice on 1 device, "
        "2 summands still to be added up over dp"
    )
    assert repr(layouts.draw(sliced)).splitlines()[3:] == [
        "  [0:4, :]  summand 0 of 2  rank 0",
        "  [4:8, :]  summand 0 of 2  rank 1",
        "  [0:4, :]  summand 1 of 2  rank 2",
        "  [4:8, :]  summand 1 of 2  rank 3",
    ]
    copied = _place(ranks(dp=2, tp=2), [Replicate(), Partial()], (8, 6), "float32")
    assert (copied.summands, copied.copies, copied.summand_of) == (2, 2, (0, 1, 0, 1))
    _, found = elements(layouts.draw(copied))
    fills = [node.get("fill") for node, _, _ in found if node.get("rx") == "5"]
    assert fills == [*svg.TINTS[:2]] * 2
    assert short_words(copied) == "not sharded, 2 copies, 2 summands to be added up over tp"


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=3),
    st.data(),
)
def test_any_summands_are_in_the_picture(sizes, data):
    names = ("pipe", "data", "model")
    view = ranks(**dict(zip(names, sizes, strict=False)))
    kinds = st.sampled_from([Partial(), Replicate(), Shard(0), Shard(1)])
    layout = _place(view, [data.draw(kinds) for _ in sizes], (1728, 1728), "float32")
    drawing = layouts.draw(layout)
    root, found = elements(drawing)
    width, height = float(root.get("width")), float(root.get("height"))
    for x0, y0, x1, y1, _ in boxes(drawing):
        assert 0 <= x0 <= x1 <= width
        assert 0 <= y0 <= y1 <= height
    held = list(zip(layout.bounds, layout.summand_of, strict=True))
    fills = [node.get("fill") for node, _, _ in found if node.get("rx") == "5"]
    if len(held) > 1:
        for i in range(len(held)):
            for j in range(i):
                assert (fills[i] == fills[j]) == (held[i] == held[j])
    assert sum(map(len, layout.parts.values())) == len(held)


def test_several_drawings_make_one_picture():
    shapes = [(8, 1), (4, 2), (2, 4), (1, 8)]
    drawing = layouts.draw(*(mesh(data=d, model=m) for d, m in shapes))
    assert drawing.svg.count("<svg") == 1
    assert drawing.text.count("mesh of 8 devices") == 4
    _, found = elements(drawing)
    titles = [node.text for node, _, _ in found if node.get("font-weight")]
    assert titles == [f"data={d}, model={m}" for d, m in shapes]
    assert len({y for node, _, y in found if node.get("font-weight")}) == 1  # all in one row


def test_titles():
    layout = split((4,), EIGHT, [("data",)])
    assert layouts.draw(layout, title="a batch").text.startswith("a batch\n")
    two = layouts.draw(layout, layout, title=["<one>", "two"])
    assert "&lt;one&gt;" in two.svg
    with pytest.raises(ValueError, match="2 objects were given, but 1 titles"):
        layouts.draw(layout, layout, title="one")
    with pytest.raises(TypeError, match="at least one"):
        layouts.draw()


def test_save(tmp_path):
    drawing = layouts.draw(EIGHT)
    drawing.save(tmp_path / "mesh.svg")
    assert ET.parse(tmp_path / "mesh.svg").getroot().tag == SVG + "svg"


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return sum(w * p for w, p in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_ink_can_be_read_on_every_tint(subtests):
    """WCAG asks for a contrast of 7 at its strictest."""
    for tint in (*svg.TINTS, svg.NEUTRAL):
        with subtests.test(tint=tint):
            assert contrast(tint, svg.INK) > 7


def test_grey_can_be_read_on_light_and_on_dark_pages(subtests):
    for page in ("#ffffff", "#111111"):  # JupyterLab's
        with subtests.test(page=page):
            assert contrast(page, svg.GREY) > 4.3


@settings(max_examples=50, deadline=None)
@given(layout=any_layout())
def test_words_have_ink_on_tints_and_grey_elsewhere(layout):
    drawing = layouts.draw(layout)
    cells = [box for box in boxes(drawing) if box[4] != "none"]
    inked = 0

    def walk(node: ET.Element, x: float, y: float, fill: str) -> None:
        nonlocal inked
        move = node.get("transform", "translate(0,0)")
        dx, dy = (float(n) for n in move.removeprefix("translate(").rstrip(")").split(","))
        x, y, fill = x + dx, y + dy, node.get("fill", fill)
        if node.tag == SVG + "text":
            at = x + float(node.get("x")), y + float(node.get("y")) - 4
            inside = any(c[0] < at[0] < c[2] and c[1] < at[1] < c[3] for c in cells)
            assert fill == (svg.INK if inside else svg.GREY), node.text
            inked += inside
        for child in node:
            walk(child, x, y, fill)

    walk(ET.fromstring(drawing.svg), 0, 0, "black")
    assert inked or len(layout.mesh.devices) == 1


def test_a_notebook_gets_an_image_and_the_text():
    """JupyterLab shows no `image/svg+xml` and drops `<svg>` before a notebook is trusted."""
    drawing = layouts.draw(EIGHT, title='a "mesh" <8>')
    assert not hasattr(drawing, "_repr_svg_")
    shown = re.fullmatch(
        r'<img src="data:image/svg\+xml;base64,([^"]+)" alt="([^"]+)" '
        r'style="max-width:100%;height:auto">',
        drawing._repr_html_(),
    )
    assert base64.b64decode(shown[1]).decode() == drawing.svg
    assert html.unescape(shown[2]) == 'a "mesh" <8>' == drawing.text.splitlines()[0]


def test_the_style_of_plots_shows_on_light_and_on_dark_pages(subtests):
    style = mpl.rc_params_from_file(STYLE, use_default_template=False)
    words = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    assert {style[key] for key in words} == {svg.GREY}
    for colour in style["axes.prop_cycle"].by_key()["color"]:
        with subtests.test(colour=colour):
            for page in ("#ffffff", "#111111"):
                assert contrast(colour, page) > 3
            assert contrast(colour, "#000000") > 4.5


def test_a_plot_in_a_notebook_is_transparent_and_asks_for_no_background():
    """JupyterLab's dark theme puts white behind a plot whose metadata ask for a light page."""
    notebook = nbformat.v4.new_notebook()
    notebook.cells = [
        nbformat.v4.new_code_cell(
            "import matplotlib.pyplot as plt\n"
            "from distlab import plots\n"
            "plots.use_style()\n"
            "plt.plot([1, 2])\n"
            "plt.show()"
        ),
        nbformat.v4.new_code_cell(
            "plt.bar([1, 2], [2, 1], 0.2, label='2')\nplt.legend()\nplt.show()"
        ),
    ]
    NotebookClient(notebook, timeout=60, kernel_name="python3").execute()
    for cell in notebook.cells:
        (plot,) = cell.outputs
        assert plot.metadata == {}
        picture = plt.imread(io.BytesIO(base64.b64decode(plot.data["image/png"])))
        assert picture[0, 0, 3] == 0
        assert 0.5 < (picture[..., 3] == 0).mean() < 1
