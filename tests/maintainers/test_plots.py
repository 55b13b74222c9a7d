"""Pictures: bars where the data are, words that can be read, one picture in a notebook."""

import base64
import io
import time
from contextlib import contextmanager
from itertools import combinations, pairwise

import matplotlib.pyplot as plt
import nbformat
import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from matplotlib.colors import to_hex, to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Patch, Rectangle
from matplotlib.text import Text
from matplotlib.transforms import Bbox
from nbclient import NotebookClient
from PIL import Image

import distlab
from distlab import plots
from distlab.lessons.plots.style import COLOURS, GREY, INK
from distlab.lessons.plots.timelines import KINDS

# Without shrinking, which takes minutes with pictures.
SEARCH = settings(
    max_examples=20, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate]
)


# What holds for every picture.


@contextmanager
def recorded():
    """The texts that Matplotlib draws, those that it leaves out for whatever reason not."""
    drawn, draw = [], Text.draw

    def record(text, renderer, *args, **kwargs):
        if text.get_visible() and text.get_text().strip():
            drawn.append(text)
        return draw(text, renderer, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Text, "draw", record)
        yield drawn


def png(figure) -> bytes:
    """A figure as a notebook stores it."""
    buffer = io.BytesIO()
    figure.savefig(buffer, facecolor=figure.get_facecolor(), bbox_inches="tight")
    return buffer.getvalue()


def words_of(figure) -> list[tuple[str, Text, Bbox]]:
    """Each text that is drawn, and its box in pixels."""
    with recorded() as drawn:
        figure.canvas.draw() if hasattr(figure.canvas, "renderer") else figure.savefig(io.BytesIO())
    texts = {id(text): text for text in drawn}.values()
    return [(text.get_text(), text, text.get_window_extent()) for text in texts]


def bars_of(figure) -> list[tuple[Rectangle, Bbox]]:
    patches = (patch for axes in figure.axes for patch in axes.patches)
    return [(p, p.get_window_extent()) for p in patches if isinstance(p, Rectangle)]


def none_overlap(figure) -> bool:
    return not any(overlap(a, b) for (_, a), (_, b) in combinations(bars_of(figure), 2))


def overlap(one: Bbox, other: Bbox, slack: float = 1.0) -> bool:
    both = Bbox.intersection(one, other)
    return both is not None and both.width > slack and both.height > slack


def inside(one: Bbox, other: Bbox) -> bool:
    return Bbox.union([one, other.padded(1)]).extents.tolist() == other.padded(1).extents.tolist()


def on_colour(text, box, bars) -> bool:
    """Whether a text stands on a colour, and not on the page."""
    opaque = (box_of for bar, box_of in bars if to_rgba(bar.get_facecolor())[3] == 1)
    return text.get_bbox_patch() is not None or any(overlap(box, each) for each in opaque)


def check_legible(figure) -> list[str]:
    """No text outside of the figure, across another or half on a bar; black on colours, else grey.

    test_drawing.py holds the contrast of both.
    """
    words, bars = words_of(figure), bars_of(figure)
    for (text, _, box), (other, _, its_box) in combinations(words, 2):
        assert not overlap(box, its_box), f"{text!r} and {other!r} overlap"
    for text, artist, box in words:
        assert inside(box, figure.bbox), f"{text!r} leaves the picture"
        for bar, extents in bars:
            if overlap(box, extents):
                assert inside(box, extents), f"{text!r} is half on {bar.get_label()}"
        assert artist.get_fontsize() >= 7
        assert to_hex(artist.get_color()) == (INK if on_colour(artist, box, bars) else GREY), text
    assert to_rgba(figure.get_facecolor())[3] == 0
    return [text for text, _, _ in words]


def legend_of(axes) -> dict[str, Patch]:
    legend = axes.get_legend()
    texts = [text.get_text() for text in legend.get_texts()]
    return dict(zip(texts, legend.legend_handles, strict=True))


def looks_of(patch) -> tuple:
    return to_rgba(patch.get_facecolor()), patch.get_hatch() or ""


def test_the_clock_of_ranks_is_one():
    def work():
        begun = time.monotonic()
        sum(range(10_000))
        return [("compute", begun, time.monotonic())]

    before = time.monotonic()
    lines = distlab.run(work, 2)
    after = time.monotonic()
    for ((_, begun, ended),) in lines:
        assert before < begun < ended < after
    assert {"rank 0", "rank 1", "compute"} <= {*check_legible(plots.timeline(lines))}


# The picture of timelines.


SCHEDULE = {
    "stage 0": [
        ("forward", 0, 1, "0"),
        ("forward", 1, 2, "1"),
        ("idle", 2, 4),
        ("backward", 4, 6, "0"),
    ],
    "stage 1": [("forward", 1, 2, 0), ("backward", 2, 4, 0), ("wait", 4, 6)],
}


def test_bars_are_where_the_spans_are():
    figure = plots.timeline(SCHEDULE, unit="slot")
    (axes,) = figure.axes
    bars = [bar for bar, _ in bars_of(figure)]
    spans = [(span[0], span[1], span[2] - span[1]) for row in SCHEDULE.values() for span in row]
    assert [(b.get_label(), b.get_x(), b.get_width()) for b in bars] == spans
    middles = [bar.get_y() + bar.get_height() / 2 for bar in bars]
    ticks = dict(
        zip([t.get_text() for t in axes.get_yticklabels()], axes.get_yticks(), strict=True)
    )
    assert list(ticks) == list(SCHEDULE)
    assert middles == pytest.approx([ticks["stage 0"]] * 4 + [ticks["stage 1"]] * 3)
    assert axes.get_ylim()[0] > axes.get_ylim()[1]  # the first rank is at the top
    assert axes.get_xlabel() == "slot"
    assert {"0", "1", "stage 0", "forward", "backward", "wait", "idle"} <= {*check_legible(figure)}


def test_each_kind_has_its_look_and_the_legend_says_so():
    figure = plots.timeline(SCHEDULE, unit="slot")
    legend = legend_of(figure.axes[0])
    assert list(legend) == ["forward", "backward", "idle", "wait"]
    for bar, _ in bars_of(figure):
        assert looks_of(bar) == looks_of(legend[bar.get_label()])
    assert to_hex(legend["forward"].get_facecolor()) == COLOURS[0]
    assert to_rgba(legend["wait"].get_facecolor())[3] < 0.5
    assert legend["wait"].get_hatch()
    assert not legend["idle"].get_hatch()


def test_seconds_are_counted_from_the_first_start(subtests):
    for length, unit, shown, named in [
        (5.0, None, 5.0, "s"),
        (0.25, None, 250, "ms"),
        (2e-4, None, 200, "\N{MICRO SIGN}s"),
        (2.0, "ms", 2000, "ms"),
    ]:
        with subtests.test(length=length, unit=unit):
            figure = plots.timeline([[("compute", 1e6, 1e6 + length)]], unit=unit)
            ((bar, _),) = bars_of(figure)
            assert (bar.get_x(), bar.get_width()) == pytest.approx((0, shown), rel=1e-4)
            assert figure.axes[0].get_xlabel() == f"time ({named})"


def test_spans_at_the_same_time_are_below_each_other():
    row = [("compute", 0, 4), ("communicate", 1, 2), ("communicate", 3, 5), ("compute", 5, 6)]
    figure = plots.timeline([row, [("compute", 0, 6)]], unit="s")
    assert none_overlap(figure)
    boxes = [box for _, box in bars_of(figure)]
    assert boxes[0].y0 > boxes[1].y0 == boxes[2].y0


def test_a_bar_of_no_length_is_seen():
    figure = plots.timeline([[("compute", 0, 1), ("save", 0.5, 0.5)]])
    save = next(bar for bar, _ in bars_of(figure) if bar.get_label() == "save")
    assert to_hex(save.get_edgecolor()) == to_hex(save.get_facecolor()) == COLOURS[3]


def test_labels_that_do_not_fit_are_left_out_and_the_others_have_one_size():
    row = [
        ("compute", 0, 10, "fits"),
        ("compute", 10, 10.2, "does not"),
        ("compute", 11, 20, "too"),
    ]
    figure = plots.timeline([row])
    assert {"fits", "too"} <= {*check_legible(figure)}
    assert "does not" not in check_legible(figure)
    sizes = {t.get_fontsize() for w, t, _ in words_of(figure) if w in ("fits", "too")}
    assert len(sizes) == 1


def test_marks_are_ticks_with_words():
    figure = plots.timeline(
        {"chief": [("compute", 10, 12)], 1: [("wait", 10, 14)]},
        marks=[("chief", 11, "killed"), (1, 14, "gave up"), ("rank 1", 13, "x")],
    )
    (axes,) = figure.axes
    ticks = [mark for mark in axes.lines if mark.get_gid() == "mark"]
    assert sorted(tick.get_xdata()[0] for tick in ticks) == [1, 3, 4]
    assert {"chief", "rank 1", "killed", "gave up", "x"} <= {*check_legible(figure)}


def test_arrows_go_from_bar_to_bar():
    rows = {"a": [("send", 0, 1)], "b": [("receive", 1, 2)], "c": [("wait", 0, 3)]}
    figure = plots.timeline(rows, unit="s", arrows=[(("a", 0.5), (1, 1.5)), ((2, 3), ("a", 2))])
    arrows = [p for p in figure.axes[0].patches if isinstance(p, FancyArrowPatch)]
    bars = {name: bar for name, (bar, _) in zip(rows, bars_of(figure), strict=True)}

    def edges(name):
        low = bars[name].get_y()
        return low, low + bars[name].get_height()

    ends = [arrow._posA_posB for arrow in arrows]
    assert ends[0] == [(0.5, edges("a")[1]), (1.5, edges("b")[0])]
    assert ends[1] == [(3, edges("c")[0]), (2, edges("a")[1])]


@st.composite
def timelines(draw):
    kinds = st.sampled_from([*KINDS, "load", "log", "sync"])
    rows = []
    for _ in range(draw(st.integers(1, 8))):
        times = sorted(draw(st.lists(st.floats(0, 100), min_size=2, max_size=12)))
        pairs = pairwise(times)
        labels = st.sampled_from(["", "0", "12", "step 3", "a very long label indeed"])
        rows.append([(draw(kinds), a, b, draw(labels)) for a, b in pairs])
    number = st.integers(0, len(rows) - 1)
    words = st.sampled_from(["killed", "restarted", "saved at step 300", "x"])
    mark = st.tuples(number, st.floats(0, 100), words)
    return rows, draw(st.lists(mark, max_size=5))


@SEARCH
@given(timelines(), st.sampled_from(["slot", "s", None]))
def test_any_timeline_is_legible(given, unit):
    rows, marks = given
    figure = plots.timeline(rows, marks=marks, unit=unit, title="A title")
    words = check_legible(figure)
    assert {"A title", *(f"rank {i}" for i in range(len(rows)))} <= {*words}
    assert none_overlap(figure)
    kinds = {kind for row in rows for kind, *_ in row}
    handles = legend_of(figure.axes[0])
    assert {*handles} == kinds
    assert len({looks_of(handle) for handle in handles.values()}) == len(kinds)


def test_the_colour_of_a_kind_can_be_chosen():
    figure = plots.timeline([[("load", 0, 1), ("compute", 1, 2)]], colours={"load": "C6"})
    legend = legend_of(figure.axes[0])
    assert to_hex(legend["load"].get_facecolor()) == COLOURS[6]


# The picture of who holds what.


def blocks_of(figure) -> list[list[tuple[str, str | None]]]:
    """Text and colour of each block, row by row from the top; None for an outline."""
    words = words_of(figure)
    rows: dict[int, list] = {}
    for block, box in bars_of(figure):
        text = "".join(text for text, _, place in words if overlap(place, box))
        colour = to_hex(block.get_facecolor()) if block.get_fill() else None
        if colour is None:
            assert block.get_linestyle() != "-"
        rows.setdefault(round(-box.y0), []).append((box.x0, text, colour))
    return [[(text, colour) for _, text, colour in sorted(rows[y])] for y in sorted(rows)]


def test_blocks_have_the_values_of_ranks_and_the_colours_of_parts():
    before = np.array([[1.0, 2.0], [3.0, 1 / 3]])
    after = [[4, None], [None, before[:, 1].sum()]]
    figure = plots.holdings({"before": before, "after": after}, title="reduce-scatter")
    assert blocks_of(figure) == [
        [("1", COLOURS[0]), ("2", COLOURS[1]), ("4", COLOURS[0]), ("", None)],
        [("3", COLOURS[0]), ("0.333", COLOURS[1]), ("", None), ("2.33", COLOURS[1])],
    ]
    words = check_legible(figure)
    assert {"reduce-scatter", "before", "after", "rank 0", "rank 1"} <= {*words}
    assert sum(isinstance(p, FancyArrowPatch) for p in figure.axes[0].patches) == 1


def test_a_key_gives_the_same_data_the_same_colour():
    before, after = [["a0", "b0"], ["a1", "b1"]], [["a0", "a1"], ["b0", "b1"]]
    figure = plots.holdings(
        {"before": before, "after": after}, key=lambda rank, position, value: value[0]
    )
    colours = {text: colour for row in blocks_of(figure) for text, colour in row}
    assert colours == {"a0": COLOURS[0], "a1": COLOURS[0], "b0": COLOURS[1], "b1": COLOURS[1]}
    figure = plots.holdings({"": before}, key=lambda rank, position, value: rank)
    assert [[c for _, c in row] for row in blocks_of(figure)] == [
        [COLOURS[0]] * 2,
        [COLOURS[1]] * 2,
    ]


def test_some_results_of_a_key_can_have_colours_of_their_own_and_arrows_can_be_left_out():
    figure = plots.holdings(
        {"": [["a", "b"], ["c", "a"]], "or": [["a", "a"], ["a", "a"]]},
        key=lambda rank, position, value: value,
        colours={"a": "C4", "missing": "C5"},
        arrows=False,
    )
    colours = {text: colour for row in blocks_of(figure) for text, colour in row}
    assert colours == {"a": COLOURS[4], "b": COLOURS[0], "c": COLOURS[1]}
    assert not any(isinstance(p, FancyArrowPatch) for p in figure.axes[0].patches)


def test_panels_go_on_below_where_there_is_no_room():
    row = ["a0+a1+a2+a3"] * 4
    figure = plots.holdings({f"step {i}": [row, row] for i in range(4)})
    titles = {text: box for text, _, box in words_of(figure) if text.startswith("step")}
    assert titles["step 0"].y0 == titles["step 1"].y0 > titles["step 2"].y0
    assert titles["step 0"].x0 == titles["step 2"].x0 < titles["step 1"].x0
    check_legible(figure)


def test_one_value_a_rank_and_names_of_ranks():
    figure = plots.holdings(
        {"before": {"chief": 1, "worker": 2}, "after": {"chief": 3, "worker": 3}}
    )
    assert {"chief", "worker"} <= {*check_legible(figure)}
    assert [[text for text, _ in row] for row in blocks_of(figure)] == [["1", "3"], ["2", "3"]]


def test_values_are_written_briefly():
    dots = "\N{HORIZONTAL ELLIPSIS}"
    words = {
        "3": 3,
        "0.1": np.float32(0.1),
        "-2": -2.0,
        "1.23e+05": 123456,
        "nan": float("nan"),
        "inf": float("inf"),
        "0 1 2": np.arange(3),
        f"1 1 {dots} 1": np.ones((2, 3)),
        "a+b": "a+b",
        "2.5": np.array(2.5),
    }
    figure = plots.holdings({"": {"rank": [*words.values()]}})
    assert [text for text, _ in blocks_of(figure)[0]] == [*words]


@SEARCH
@given(
    st.tuples(st.integers(1, 5), st.integers(1, 8), st.integers(1, 9)).flatmap(
        lambda n: st.lists(
            st.lists(
                st.lists(
                    st.none() | st.sampled_from(["a0", "+".join("abcdefgh"), "W" * 30, 0.25]),
                    min_size=n[2],
                    max_size=n[2],
                ),
                min_size=n[1],
                max_size=n[1],
            ),
            min_size=n[0],
            max_size=n[0],
        )
    )
)
def test_any_holdings_are_legible(panels):
    figure = plots.holdings({f"step {i}": rows for i, rows in enumerate(panels)}, title="A title")
    words = check_legible(figure)
    assert {"A title", *(f"step {i}" for i in range(len(panels)))} <= {*words}
    held = [value for rows in panels for row in rows for value in row]
    assert len(bars_of(figure)) == len(held)
    assert none_overlap(figure)
    drawn = sum("rank" not in word and "step" not in word for word in words) - 1
    assert drawn == sum(value is not None for value in held)


# The picture of memory.


PLANS = {
    "1 device": {"weights": 4e9, "gradients": 4e9, "optimizer state": 8e9, "scratch": 1e6},
    "4 devices": {"weights": 4e9, "gradients": 1e9, "optimizer state": 2e9},
}


def test_bars_are_stacked_of_what_takes_the_bytes():
    figure = plots.memory(PLANS, unit="GB")
    bars = [bar for bar, _ in bars_of(figure)]
    rows: dict[float, list] = {}
    for bar in bars:
        rows.setdefault(bar.get_y(), []).append(bar)
    for name, row in zip(PLANS, [rows[y] for y in sorted(rows)], strict=True):
        assert [bar.get_label() for bar in row] == list(PLANS[name])
        sizes = np.array([*PLANS[name].values()]) / 1e9
        np.testing.assert_allclose([bar.get_width() for bar in row], sizes)
        np.testing.assert_allclose([bar.get_x() for bar in row], np.cumsum(sizes) - sizes)
    words = check_legible(figure)
    assert {"1 device", "4 devices", "16 GB", "7 GB", "weights 4", "scratch"} <= {*words}
    assert figure.axes[0].get_xlabel() == "memory (GB)"


def test_kinds_of_memory_have_their_colours_also_those_too_small_for_a_pixel():
    figure = plots.memory(PLANS, unit="GB")
    legend = legend_of(figure.axes[0])
    colours = {name: to_hex(patch.get_facecolor()) for name, patch in legend.items()}
    assert list(colours) == ["weights", "gradients", "optimizer state", "scratch"]
    assert [*colours.values()][:3] == list(COLOURS[:3])
    (small,) = [bar for bar, _ in bars_of(figure) if bar.get_label() == "scratch"]
    assert small.get_linewidth() > 0
    assert to_hex(small.get_edgecolor()) == colours["scratch"] not in COLOURS[:3]


def test_words_on_a_hatch_have_its_colour_around_them_inside_the_bar():
    plans = {f"plan {size}": {"weights": 5e7, "inputs": size} for size in (9.8e7, 6e6, 2e5)}
    figure = plots.memory(plans)
    check_legible(figure)
    bars = {bar.get_y(): box for bar, box in bars_of(figure) if bar.get_hatch()}
    grounds = [t.get_bbox_patch() for t in figure.axes[0].texts if t.get_bbox_patch()]
    assert len(grounds) == 2  # none where there is no room
    for ground, box in zip(grounds, bars.values(), strict=False):
        assert inside(ground.get_window_extent(), box)
        assert ground.get_window_extent().height > 0.7 * box.height


def test_the_limit_is_a_dashed_line_and_what_passes_it_says_so():
    figure = plots.memory(PLANS, limit=12e9, unit="GB")
    words = check_legible(figure)
    assert {"limit: 12 GB", "16 GB, 4 too much", "7 GB"} <= {*words}
    (line,) = [line for line in figure.axes[0].lines if line.get_gid() == "limit"]
    assert [*line.get_xdata()] == [12, 12]
    assert line.get_linestyle() == "--"
    assert all(line.get_zorder() > bar.get_zorder() for bar, _ in bars_of(figure))


@pytest.mark.parametrize(
    ("size", "limit", "unit", "words"),
    [
        # What is too much is what readers find who subtract.
        (128.45e9, 80e9, "GB", "128 GB, 48 too much"),
        (80.1e9, 80e9, "GB", "80.1 GB, 0.1 too much"),
        (80.04e9, 80e9, "GB", "80 GB, 0.04 too much"),
        (999.7e9, 80e9, "GB", "1,000 GB, 920 too much"),
        (2**21, None, "MB", "2.1 MB"),
        (2**21, None, "MiB", "2 MiB"),
    ],
)
def test_totals_are_written_behind_their_bars(size, limit, unit, words):
    figure = plots.memory({"a": {"weights": size}}, limit=limit, unit=unit)
    assert words in check_legible(figure)


@SEARCH
@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(["weights", "gradients", "optimizer state", "activations", "x", "y"]),
            st.floats(1, 1e9),
            min_size=1,
        ),
        min_size=1,
        max_size=8,
    ),
    st.none() | st.floats(1, 3e9),
    st.sampled_from(["kB", "MB", "GiB"]),
)
def test_any_memory_is_legible(plans, limit, unit):
    named = {f"plan {i}": parts for i, parts in enumerate(plans)}
    figure = plots.memory(named, limit=limit, unit=unit, title="A title")
    words = check_legible(figure)
    assert {"A title", *named, *(kind for parts in plans for kind in parts)} <= {*words}
    boxes = words_of(figure)
    for line in figure.axes[0].lines:
        across = line.get_window_extent()
        for text, _, box in boxes:
            assert not overlap(across, box, slack=0), text


# The picture of curves.


SERIAL = np.float32([2.0, 1.0, 0.5, 0.25])
NEAR = SERIAL + np.float32([0, 1e-6, -1e-3, 0])


def test_curves_are_drawn_above_and_their_differences_below():
    figure = plots.compare({"serial": SERIAL, "parallel": NEAR}, "serial", x="epoch", y="error")
    above, below = figure.axes
    lines = {line.get_label(): line for line in above.lines}
    assert list(lines) == ["serial", "parallel"]  # the reference lies below
    assert lines["serial"].get_linewidth() > 3 * lines["parallel"].get_linewidth()
    np.testing.assert_array_equal(lines["parallel"].get_ydata(), NEAR.astype(float))
    assert below.get_yscale() == "log"
    apart = np.abs(NEAR.astype(float) - SERIAL)
    difference = next(line for line in below.lines if line.get_label() == "parallel")
    np.testing.assert_array_equal(difference.get_ydata(), np.where(apart > 0, apart, np.nan))
    assert (above.get_ylabel(), below.get_xlabel()) == ("error", "epoch")
    assert {"serial (reference)", "parallel", "0"} <= {*check_legible(figure)}


def test_zeros_are_shown_on_a_line_of_their_own():
    figure = plots.compare({"serial": SERIAL, "parallel": NEAR}, "serial")
    below = figure.axes[1]
    (zeros,) = [line for line in below.lines if line.get_gid() == "zeros"]
    np.testing.assert_array_equal(zeros.get_xdata(), [0, 3])
    (height,) = {*zeros.get_ydata()}
    bottom, top = below.get_ylim()
    assert bottom < height < 1e-7 < top
    labels = [label.get_text() for label in below.get_yticklabels()]
    assert labels[0] == "equal"
    assert below.get_yticks()[0] == height
    without = plots.compare({"serial": SERIAL, "parallel": SERIAL + 1}, "serial").axes[1]
    assert "equal" not in [label.get_text() for label in without.get_yticklabels()]


def test_curves_that_are_equal_show_that_they_are():
    figure = plots.compare({"serial": SERIAL, "4": SERIAL, "8": SERIAL}, "serial")
    words = check_legible(figure)
    assert "no difference at any point" in words
    panels = figure.axes[1:]
    assert [panel.get_title(loc="left") for panel in panels] == ["4", "8"]
    for panel in panels:
        (zeros,) = [line for line in panel.lines if line.get_gid() == "zeros"]
        assert [*zeros.get_xdata()] == [0, 1, 2, 3]


def test_a_single_point_is_seen():
    above = plots.compare({"serial": [1.0], "4": [1.5], "8": [2.0]}, "serial").axes[0]
    assert all(line.get_marker() == "o" for line in above.lines)
    many = plots.compare({"serial": SERIAL, "4": NEAR}, "serial").axes[0]
    assert not any(line.get_marker() for line in many.lines)


def test_panels_of_differences_have_one_scale():
    figure = plots.compare({"serial": SERIAL, "4": NEAR, "8": SERIAL + 10}, "serial")
    limits, ticks = zip(
        *((panel.get_ylim(), [*panel.get_yticks()]) for panel in figure.axes[1:]), strict=True
    )
    assert limits[0] == limits[1]
    assert ticks[0] == ticks[1]
    assert limits[0][0] < 1e-7 < 10 < limits[0][1]


def test_no_curve_hides_another_that_has_the_same_values():
    curves = {f"{n} ranks": SERIAL for n in (1, 2, 4, 8)}
    above = plots.compare(curves, "1 ranks").axes[0]
    with io.BytesIO() as buffer:
        above.figure.savefig(buffer)
        with Image.open(buffer) as picture:
            pixels = np.asarray(picture.convert("RGB"), dtype=int)[:200]
    for line in above.lines[1:]:
        rgb = (np.array(to_rgba(line.get_color())[:3]) * 255).astype(int)
        near = abs(pixels - rgb).max(axis=2) < 25
        assert near.sum() > 200, line.get_label()
        assert np.ptp(np.flatnonzero(near.any(axis=0))) > 600, line.get_label()  # all the way


def test_the_distance_of_float32_numbers_is_drawn_if_asked():
    name = "gap between neighbouring float32 numbers"
    curves = {"serial": SERIAL, "parallel": NEAR}
    assert name not in check_legible(plots.compare(curves, "serial"))
    figure = plots.compare(curves, "serial", rounding=True)
    assert name in check_legible(figure)
    line = next(line for line in figure.axes[1].lines if line.get_label() == name)
    np.testing.assert_array_equal(line.get_ydata(), np.ldexp(1.0, [-22, -23, -24, -25]))


@SEARCH
@given(
    st.integers(1, 60).flatmap(
        lambda n: st.lists(
            st.lists(st.floats(-1e6, 1e6, width=32), min_size=n, max_size=n),
            min_size=2,
            max_size=6,
        )
    ),
    st.booleans(),
)
def test_any_curves_are_legible(values, rounding):
    curves = {f"curve {i}": each for i, each in enumerate(values)}
    figure = plots.compare(curves, "curve 0", rounding=rounding, title="A title")
    assert {"A title", "step", "loss", *list(curves)[1:]} <= {*check_legible(figure)}
    for panel in figure.axes[1:]:
        bottom, top = panel.get_ylim()
        for line in panel.lines:
            data = np.asarray(line.get_ydata())
            assert ((data >= bottom) & (data <= top))[np.isfinite(data)].all()


# What would be a wrong picture.


@pytest.mark.parametrize(
    ("words", "draw"),
    [
        ("No span was recorded, in 2 rows", lambda: plots.timeline([[], []])),
        (
            "'save' of row 'chief' ends before it starts: from 2 to 1",
            lambda: plots.timeline({"chief": [("save", 2, 1)]}),
        ),
        (
            "no row 'rank 2' among .* mean 'rank 0'",
            lambda: plots.timeline([[("x", 0, 1)]], marks=[("rank 2", 1, "x")]),
        ),
        ("no row 2", lambda: plots.timeline([[("x", 0, 1)]], arrows=[((0, 0), (2, 1))])),
        (
            r"'before' has the ranks \['rank 0', 'rank 1'\], 'after' has \['rank 0'\]",
            lambda: plots.holdings({"before": [[1, 2], [3, 4]], "after": [[1, 2]]}),
        ),
        (
            "rank 1 of 'after' has 1, rank 0 of 'before' has 2. Write None",
            lambda: plots.holdings({"before": [[1, 2], [3, 4]], "after": [[1, 2], [3]]}),
        ),
        ("No plan takes any memory", lambda: plots.memory({"a": {"weights": 0}})),
        ("Unknown unit 'gb'.* mean 'GB'", lambda: plots.memory({"a": {"x": 1}}, unit="gb")),
        (
            "'serail' is not among .* mean 'serial'",
            lambda: plots.compare({"serial": [1], "b": [1]}, "serail"),
        ),
        ("nothing to compare 'a' with", lambda: plots.compare({"a": [1]}, "a")),
        (
            "'b' has 1 values and 'a' has 2",
            lambda: plots.compare({"a": [1, 2], "b": [1]}, "a"),
        ),
    ],
)
def test_what_would_be_a_wrong_picture_is_refused(words, draw):
    with pytest.raises(ValueError, match=words):
        draw()


# How pictures are shown, and kept.


CALLS = {
    "timeline": lambda: plots.timeline(SCHEDULE, unit="slot", title="A title"),
    "holdings": lambda: plots.holdings({"before": [[1]], "after": [[2]], "later": [[3]]}),
    "memory": lambda: plots.memory(PLANS, limit=12e9, unit="GB"),
    "compare": lambda: plots.compare({"a": SERIAL, "b": NEAR, "c": SERIAL}, "a", rounding=True),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_a_picture_is_none_of_pyplots_and_has_the_same_bytes_again(call):
    before = plt.get_fignums()
    figure = call()
    assert isinstance(figure, Figure)
    assert plt.get_fignums() == before
    assert figure.get_figwidth() == 9
    first = png(figure)
    assert png(figure) == first
    with plt.style.context(["dark_background", {"font.size": 20, "hatch.color": "red"}]):
        assert png(call()) == first


SHOWN = """
from distlab import plots
import matplotlib.pyplot as plt
rows = [[("compute", 0, 1)], [("wait", 0, 1)]]
"""


@pytest.mark.parametrize("style", ["", "plots.use_style()"])
def test_a_notebook_shows_one_picture(style):
    cells = [
        SHOWN + style,
        "plots.timeline(rows)",
        "figure = plots.timeline(rows)",
        "figure",
        "plots.timeline(rows);",
        "plots.timeline(rows)\nplt.show()",
        "figure, axes = plt.subplots()\nplots.timeline(rows, axes=axes)",
        "display(plots.timeline(rows))",
    ]
    notebook = nbformat.v4.new_notebook()
    notebook.cells = [nbformat.v4.new_code_cell(cell) for cell in cells]
    NotebookClient(notebook, timeout=60, kernel_name="python3").execute()
    outputs = [cell.outputs for cell in notebook.cells]
    pictures = [sum("image/png" in output.get("data", {}) for output in each) for each in outputs]
    assert pictures == [0, 1, 0, 1, 0, 0, 1, 1]
    assert [len(each) for each in outputs] == pictures  # and nothing else
    shown = [output for each in (outputs[1], outputs[3], outputs[7]) for output in each]
    assert len({output.data["image/png"] for output in shown}) == 1
    for output in shown:
        assert output.metadata == {}
        with Image.open(io.BytesIO(base64.b64decode(output.data["image/png"]))) as picture:
            assert picture.convert("RGBA").getchannel("A").getpixel((0, 0)) == 0
            assert 850 < picture.width < 1000
