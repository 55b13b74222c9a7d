"""The first minute in a browser: start page, pictures, links, and what git sees of it."""

import json
import os
import pty
import re
import sysconfig
from collections.abc import Iterator

import pytest
from _browser import Lab, browser, copy_checkout, git, window

import distlab

pytestmark = pytest.mark.needs("browser")
LESSON = "notebooks/01_devices_meshes_layouts.ipynb"
SIZES = """async pictures => {
    await Promise.all(pictures.map(picture => picture.decode()));
    return pictures.map(picture => [
        picture.naturalWidth,
        picture.clientWidth,
        picture.closest(".jp-OutputArea-child").clientWidth,
        getComputedStyle(picture).backgroundColor,
    ]);
}"""
NO_COLOUR = "rgba(0, 0, 0, 0)"
CUT = "names => names.filter(n => n.scrollWidth > n.clientWidth).map(n => n.innerText)"


@pytest.fixture(scope="module")
def lab(tmp_path_factory) -> Iterator[Lab]:
    started = Lab(copy_checkout(tmp_path_factory.mktemp("checkout")))
    try:
        yield started
    finally:
        started.close()


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    with browser(tmp_path_factory.mktemp("browser")) as started:
        yield started


@pytest.fixture(scope="module")
def unsigned(lab) -> str:
    """A lesson's copy that nobody has signed: one of its outputs says something else."""
    notebook = json.loads((lab.checkout / LESSON).read_text())
    outputs = [output for cell in notebook["cells"] for output in cell.get("outputs", [])]
    printed = next(output for output in outputs if output["output_type"] == "stream")
    printed["text"] = ["something else\n"]
    path = "work/unsigned.ipynb"
    (lab.checkout / path).write_text(json.dumps(notebook))
    return path


def test_the_start_page_is_open_and_every_lesson_can_be_read_in_the_file_browser(lab, chromium):
    with window(lab, chromium) as shown:
        shown.start()
        assert shown.page.locator(".jp-Cell h1").first.inner_text().startswith("Start here")
        names = shown.page.locator(".jp-DirListing-item:visible .jp-DirListing-itemText")
        names.first.wait_for()
        # The lessons, and a folder for each language they are translated to.
        there = sorted(path.name for path in (lab.checkout / "notebooks").glob("[!.]*"))
        assert sorted(names.all_inner_texts()) == there
        assert names.evaluate_all(CUT) == []
        shown.ready()


def test_the_start_page_runs_to_its_end_without_an_error(lab, chromium):
    with window(lab, chromium) as shown:
        shown.open("notebooks/00_start_here.ipynb")
        shown.run_all(seconds=120)
        prompts = shown.cells.locator(".jp-InputArea-prompt").all_text_contents()
        numbers = [int(prompt.strip("[]:")) for prompt in prompts]
        # One cell after another; those whose code is folded show no number.
        cells = json.loads((lab.checkout / "notebooks/00_start_here.ipynb").read_text())["cells"]
        code = [cell for cell in cells if cell["cell_type"] == "code"]
        folded = [cell["metadata"].get("jupyter", {}).get("source_hidden", False) for cell in code]
        assert numbers == [n for n, hidden in enumerate(folded, 1) if not hidden]
        failed = shown.document.locator("[data-mime-type='application/vnd.jupyter.stderr']")
        assert failed.all_text_contents() == []


@pytest.mark.parametrize("theme", ["Light", "Dark"])
def test_pictures_are_seen_before_anything_has_run(lab, chromium, unsigned, theme):
    with window(lab, chromium, theme=theme) as shown:
        shown.open(unsigned)
        pictures = shown.document.locator(".jp-OutputArea-output img")
        cells = json.loads((lab.checkout / unsigned).read_text())["cells"]
        stored = json.dumps([c.get("outputs") for c in cells if "collapsed" not in c["metadata"]])
        number = stored.count("<img ") + stored.count('"image/png"')
        assert number >= 3
        pictures.nth(number - 1).wait_for(state="attached")  # in idle moments, one by one
        shown.ready()
        for width in (1440, 820):
            shown.page.set_viewport_size({"width": width, "height": 900})
            sizes = pictures.evaluate_all(SIZES)
            assert len(sizes) == number
            assert max(natural for natural, *_ in sizes) > 300
            for natural, drawn, offered, background in sizes:
                assert min(natural, offered, 30) <= drawn <= offered
                assert background == NO_COLOUR, "it should fit either theme"
        pictures.first.scroll_into_view_if_needed()


def test_from_the_place_for_copies_links_and_imports_work(lab, chromium):
    targets = {
        "../README.md": "distlab",
        "../docs/benchmarks.md": "What a launch costs",
        "../notebooks/00_start_here.ipynb": "Start here",
    }
    links = " ".join(f"[{title}]({target})" for target, title in targets.items())
    which = "import shutil, sys\nprint(shutil.which('python') == sys.executable)"
    path = lab.notebook(
        "mine", "import distlab\nprint(*sorted(distlab.__all__))", which, title=links
    )
    with window(lab, chromium) as shown:
        shown.open(path)
        shown.run_all(seconds=30)
        assert "launch" in shown.texts(0)[0]
        assert shown.texts(1) == ["True\n"]
        for title in targets.values():
            shown.page.locator(".lm-TabBar-tabLabel", has_text="mine.ipynb").click()
            shown.document.get_by_role("link", name=title).click()
            shown.document.locator("h1", has_text=title).first.wait_for()


@pytest.mark.parametrize("path", ["notebooks/00_start_here.ipynb", LESSON])
def test_a_lesson_that_is_opened_and_saved_is_no_change_for_git(lab, chromium, path):
    git(lab.checkout, "checkout", "--quiet", "HEAD", "--", "notebooks")
    before = (lab.checkout / path).stat().st_mtime_ns
    with window(lab, chromium) as shown:
        shown.open(path)
        shown.ready()
        assert shown.unsaved.count() == 0
        shown.save()
    assert (lab.checkout / path).stat().st_mtime_ns > before
    assert git(lab.checkout, "status", "--porcelain") == ""


READY = "import os, time, distlab\nos.environ['DISTLAB_PROGRESS'] = 'on'  # as readers have it"


def test_ranks_that_print_much_and_a_cell_that_is_interrupted_leave_a_page_that_can_be_used(
    lab, chromium
):
    many = (
        "def work():\n    for i in range(100_000):\n        print('line', i)\n"
        "job = distlab.launch(work, 1); job.follow()"
    )
    count, wait = "print(job.log(0).count('line'))", "distlab.run(time.sleep, 2, args=(600,))"
    in_background = "distlab.launch(time.sleep, 2, args=(600,))"
    path = lab.notebook("much", READY, many, count, wait, in_background)
    with window(lab, chromium) as shown:
        shown.open(path)
        shown.run_all()
        from playwright.sync_api import expect

        running = re.compile("Job of 2 ranks, for [1-9] s: 2 running")
        expect(shown.output(3)).to_have_text(running, timeout=60_000)
        assert shown.cells.nth(3).locator(".jp-InputArea-prompt").inner_text() == "[*]:"
        shown.interrupt()
        shown.wait_idle()
        said = "\n".join(shown.texts(1))
        assert said.count("[rank 0] line") == 200
        assert "99,800 lines left out here: with job = launch(...), job.log(0) has" in said
        assert "rate exceeded" not in said
        boxes = shown.output(1).evaluate_all("all => all.map(e => e.clientHeight / innerHeight)")
        assert max(boxes) <= 0.8, "so many lines should scroll in a box"
        assert shown.texts(2) == ["100000\n"]
        said, error = shown.texts(3)
        line = r"Job of 2 ranks, over after [\d.]+ s: 2 stopped( \(plus \d+ s to get started\))?"
        assert re.fullmatch(line, said.strip())
        assert error.strip() == "KeyboardInterrupt: interrupted; 2 ranks were stopped"
        shown.menu("Run", "Run Selected Cell and Do not Advance")
        expect(shown.output(4)).to_have_text(running)
        late = shown.output(4).get_by_text("not up to date")
        expect(late).to_be_hidden()
        shown.menu("Kernel", "Restart Kernel…")
        shown.page.locator(".jp-Dialog .jp-mod-accept").click()
        expect(late).to_be_visible(timeout=20_000)
        shown.save()
    assert (lab.checkout / path).stat().st_size < 50_000


def test_in_a_notebook_of_ones_own(lab, chromium):
    """Wide tables scroll, errors wrap, Tab offers what is public, TensorFlow has no red lines."""
    sources = ("print('word ' * 60)", "import tensorflow as tf", "int(tf.reduce_sum(tf.ones(3)))")
    wrong = "raise ValueError('word ' * 60)"
    path = lab.notebook("own", *sources, "import distlab", "1", wrong)
    with window(lab, chromium, 820) as shown:
        shown.open(path)
        shown.run_all(seconds=120)
        height, drawn, needed = (
            shown.output(0)
            .locator("pre")
            .evaluate("e => [e.clientHeight, e.clientWidth, e.scrollWidth]")
        )
        assert height < 30, "the line should not be wrapped"
        assert needed > drawn
        error = shown.output(5).locator("pre").evaluate("e => [e.clientWidth, e.scrollWidth]")
        assert error[1] <= error[0]
        assert shown.texts(1) == []
        assert shown.texts(2) == ["3"]
        offered = {name.removeprefix(".") for name in shown.complete(4, "distlab.")}
        public = {name for name in dir(distlab) if not name.startswith("_")}
        assert {name for name in offered if not name.startswith("_")} == public


def test_ctrl_c_ends_it_at_once(lab):
    _, terminal = pty.openpty()  # without one the server ignores interrupts
    started = Lab(lab.checkout, stdin=terminal)
    try:
        assert started.interrupt() == 0
    finally:
        started.close()


def test_its_terminals_find_what_the_environment_has(lab):
    shell = lab.shell()
    assert shell.environ()["PATH"].split(os.pathsep)[0] == sysconfig.get_path("scripts")
    assert len(shell.cmdline()) == 1, "a login shell (an argument, -l) would change PATH"


def test_the_terminal_shows_the_address_and_nothing_else(lab):
    page = r"http://localhost:\d+/lab/tree/notebooks/00_start_here\.ipynb\?token=\w{48}"
    print(*lab.lines, sep="\n")
    said = [line for line in lab.lines if not re.search(r"Notebook work/\w+\.ipynb is not", line)]
    assert [re.sub(f"{page}$", "ADDRESS", line) for line in said] == [
        "JupyterLab runs, and Ctrl-C ends it: ADDRESS"
    ]
