"""Drawings: nothing outside its box, every device where it belongs, the same text every time.

And plots, which are shown beside them on light and on dark pages.
"""

import base64
import html
import math
import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import matplotlib as mpl
import numpy as np
import pytest
from _tools import ROOT
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from distlab import layouts
from distlab.layouts import svg
from distlab.layouts.tables import Table
from distlab.layouts.tensor_picture import CHIPS
from distlab.layouts.variables import Variable
from distlab.layouts.view import Layout, Mesh, split
from distlab.layouts.words import in_few_words, sentence
from distlab.lessons.plots.style import STYLE
from distlab.phrases import use_language

SVG = "{http://www.w3.org/2000/svg}"


def mesh(label: str = "cpu:", **axes: int) -> Mesh:
    count = math.prod(axes.values())
    return Mesh(tuple(axes.items()), tuple(f"{label}{i}" for i in range(count)))


EIGHT = mesh(data=2, model=4)


def summands(shape, view: Mesh, spec, *partial: str) -> Layout:
    """A layout whose devices along some axes hold terms that still have to be added up."""
    return replace(split(shape, view, spec, dtype="float32"), partial=partial)


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
    partial = []
    for name in draw(st.permutations(names)):
        where = draw(st.sampled_from([None, "partial", *range(rank)]))
        if where == "partial" and math.prod(view.size(axis) for axis in (*partial, name)) <= 8:
            partial.append(name)
        elif isinstance(where, int):
            spec[where].append(name)
    shape = [
        math.prod(view.size(axis) for axis in axes) * draw(st.integers(1, 300)) for axes in spec
    ]
    layout = split(shape, view, spec, dtype=draw(st.sampled_from(["float32", None])))
    return replace(layout, partial=tuple(partial))


def elements(drawing: layouts.Drawing) -> tuple[ET.Element, list[tuple[ET.Element, float, float]]]:
    """The document, and each rectangle and text with where its group has moved it.

    Each text has the colour of its group.
    """
    root = ET.fromstring(drawing.svg)
    found = []

    def walk(node: ET.Element, x: float, y: float, fill: str) -> None:
        fill = node.get("fill", fill)
        if node.tag == SVG + "text":
            node.set("fill", fill)
        move = node.get("transform", "translate(0,0)")
        dx, dy = (float(n) for n in move.removeprefix("translate(").rstrip(")").split(","))
        if node.tag in (SVG + "rect", SVG + "text"):
            found.append((node, x + dx + float(node.get("x")), y + dy + float(node.get("y"))))
        for child in node:
            walk(child, x + dx, y + dy, fill)

    walk(root, 0, 0, "black")
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
    assert width <= svg.WIDTH + 2 * svg.MARGIN or max(len(layout.parts), layout.mesh.shape[-1]) > 16
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
    assert len(fills) == count == sum(map(len, layout.parts.values()))
    held = list(zip(layout.bounds, layout.summand_of, strict=True))
    for i in range(count):
        for j in range(i):
            assert (fills[i] == fills[j]) == (held[i] == held[j])


@settings(max_examples=30, deadline=None)
@given(layout=any_layout())
def test_drawings_are_the_same_every_time_and_small(layout):
    one, two = layouts.draw(layout), layouts.draw(layout)
    assert one == two
    assert repr(one) == one.text
    assert len(one.svg) < 3_000 + 450 * len(layout.mesh.devices)
    assert len(one.text.splitlines()) <= 20


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


def test_an_empty_tensor_is_drawn_and_the_words_on_one_device_fit():
    empty = layouts.draw(split((0, 4), EIGHT, [[], ["model"]], dtype="float32"))
    assert "float32[0, 4] on 8 devices" in repr(empty)
    root, _ = elements(layouts.draw(mesh(data=1)))
    assert int(root.get("width")) > svg.text_width("devices (cpu)")


def test_a_dimension_smaller_than_its_axis_is_sharded_all_the_same():
    bounds = ((0, 1), (0, 64)), *[((0, 0), (0, 64))] * 3
    layout = Layout((1, 64), mesh("rank ", dp=4), (("dp",), ()), bounds, "float32")
    assert sentence(layout) == (
        "Dimension 0 sharded in one part over dp, dimension 1 not sharded, "
        "each slice on 1 device, 3 devices hold nothing."
    )
    assert in_few_words(layout) == "dim 0 in 1 over dp, 1 copy, 3 devices hold nothing"


def test_uneven_parts_and_a_device_with_nothing():
    bounds = tuple((rows, (0, 3)) for rows in ((0, 2), (2, 4), (4, 5), (0, 0)))
    layout = Layout((5, 3), mesh("rank ", tp=4), (("tp",), ()), bounds, "float32")
    assert sentence(layout) == (
        "Dimension 0 sharded in 3 unequal parts over tp, dimension 1 not sharded, "
        "each slice on 1 device, 1 device holds nothing."
    )
    drawing = layouts.draw(layout)
    root, _ = elements(drawing)
    assert sum(node.get("stroke-dasharray") is not None for node in root.iter()) == 1
    tall = [y1 - y0 for _, y0, _, y1, fill in boxes(drawing) if fill in svg.TINTS[:3]][:3]
    assert tall[0] == tall[1] > tall[2]


def test_summands_are_drawn_apart():
    drawing = layouts.draw(summands((8, 6), mesh("rank ", dp=4), [], "dp"))
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


def test_summands_of_slices_and_their_copies():
    ranks = mesh("rank ", dp=2, tp=2)
    assert repr(layouts.draw(summands((8, 6), ranks, [("tp",)], "dp"))).splitlines()[1:] == [
        "Dimension 0 sharded 2 ways over tp, dimension 1 not sharded, each slice on 1 device, "
        "2 summands still to be added up over dp.",
        "Each device holds [4, 6]: 96 B of 192 B.",
        "  [0:4, :]  summand 0 of 2  rank 0",
        "  [4:8, :]  summand 0 of 2  rank 1",
        "  [0:4, :]  summand 1 of 2  rank 2",
        "  [4:8, :]  summand 1 of 2  rank 3",
    ]
    copied = summands((8, 6), ranks, [], "tp")
    assert (copied.summands, copied.copies, copied.summand_of) == (2, 2, (0, 1, 0, 1))
    assert in_few_words(copied) == "not sharded, 2 copies, 2 summands to be added up over tp"


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
    """On JupyterLab's as such, and better where our styles know the page: WCAG asks for 4.5."""
    styles = (ROOT / "tools" / "jupyter" / "custom.css").read_text()
    darker = re.search(r"brightness\((.*?)\)", styles)[1]
    curve = set(re.findall("'([ .0-9]+)'", styles))
    points = [float(value) for value in curve.pop().split()]
    grey = int(svg.GREY[1:3], 16) / 255
    lifted = np.interp(grey, np.linspace(0, 1, len(points)), points)
    assert not curve, "one curve for all three colours"
    for page, there, least in ("#ffffff", grey * float(darker), 4.5), ("#111111", lifted, 6.5):
        with subtests.test(page=page):
            assert contrast(page, svg.GREY) > 4.3
            assert contrast(page, "#" + 3 * f"{round(255 * there):02x}") > least


@settings(max_examples=50, deadline=None)
@given(layout=any_layout())
def test_words_have_ink_on_tints_and_grey_elsewhere(layout):
    drawing = layouts.draw(layout)
    cells = [box for box in boxes(drawing) if box[4] != "none"]
    inked = 0
    for node, x, y in elements(drawing)[1]:
        if node.tag == SVG + "text":
            inside = any(c[0] < x < c[2] and c[1] < y - 4 < c[3] for c in cells)
            assert node.get("fill") == (svg.INK if inside else svg.GREY), node.text
            inked += inside
    assert inked or len(layout.mesh.devices) == 1


@pytest.fixture
def korean():
    use_language("ko")
    yield
    use_language("en")


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(any_layout())
def test_in_korean_a_picture_has_no_english_words_but_names(korean, layout):
    names = {"pipe", "data", "model", "cpu", "float", "scalar", "w", "B", "KiB", "MiB", "GiB"}
    found = elements(layouts.draw(layout))[1]
    said = " ".join(node.text or "" for node, _, _ in found if node.tag == SVG + "text")
    words = set(re.findall("[A-Za-z]+", said))
    assert words <= names


def test_in_korean_a_table_keeps_names_and_a_language_must_be_there(korean):
    layout = split((8, 8), EIGHT, [[], ["model"]], dtype="float32")
    row = Variable("dense/kernel", (8, 8), "float32", layout, "keras", "kernel")
    said = Table((row,))._repr_html_()
    for words in ("변수", "dense/kernel", "차원 1: model 축으로 4등분, 복사본 2개", ">kernel<"):
        assert words in said
    with pytest.raises(ValueError, match="no language 'fr': expected en, ko"):
        use_language("fr")


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
