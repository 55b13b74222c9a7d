"""The site as readers see it: made once of what is stored, then looked at in one browser."""

import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from _browser import browser
from _site import ALONE, Reader, build, reader, served
from _tools import ROOT, tool

import distlab

pytestmark = pytest.mark.needs("browser")
LESSON = "notebooks/01_devices_meshes_layouts.html"
API = "docs/site/api/distlab.datasets.html"
LANGUAGES = {"ko": "한국어", "ja": "日本語"}
WIDTHS = (390, 800, 1400)
MADE = ("search.html", "genindex.html", "py-modindex.html")
LOOKED_AT = (
    "index.html",
    "README.ja.html",
    "notebooks/ko/00_start_here.html",
    LESSON,
    "notebooks/12_pytorch_beyond_replication.html",
    API,
    "docs/glossary.html",
    "search.html?q=LayoutMap",
)
"""Pages of each kind, which axe goes through; the others are made alike."""
INVISIBLE = "rgba(0, 0, 0, 0)"


@pytest.fixture(scope="module")
def copy(tmp_path_factory) -> Path:
    """A copy of the project that is stamped with ada/lab, with its site."""
    return build(tmp_path_factory.mktemp("site"))


@pytest.fixture(scope="module")
def site(copy) -> Path:
    return copy / "build" / "site"


@pytest.fixture(scope="module")
def address(site) -> Iterator[str]:
    with served(site) as there:
        yield there


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    with browser(tmp_path_factory.mktemp("browser"), ALONE) as started:
        yield started


@pytest.fixture
def somebody(chromium, address) -> Iterator[Reader]:
    with reader(chromium, address) as started:
        yield started
        assert started.trouble == []


@pytest.fixture(scope="module")
def pages(site) -> list[str]:
    named = [path.relative_to(site).as_posix() for path in sorted(site.rglob("*.html"))]
    return [name for name in named if name != "404.html" and not name.startswith("_static")]


OUTLINE = """() => {
    const all = (what, from = document) => [...from.querySelectorAll(what)];
    const article = document.querySelector("article");
    const isBare = (one) => !(article?.contains(one) ? one.alt : one.hasAttribute("alt"));
    return {
        levels: all("h1, h2, h3, h4, h5, h6", article ?? document)
            .map((one) => Number(one.tagName[1])),
        undescribed: all("img").filter(isBare).map((one) => one.src.slice(0, 80)),
        title: document.title,
        language: document.documentElement.lang,
    };
}"""


def test_every_page_opens_without_errors_or_another_network_and_fits(
    chromium, address, pages, subtests
):
    titles = []
    with reader(chromium, address) as somebody:
        for name in pages:
            with subtests.test(name):
                somebody.asked.clear()
                somebody.trouble.clear()
                somebody.open(name)
                assert [width for width in WIDTHS if somebody.overflows(width)] == []
                assert somebody.trouble == []
                loaded = any("searchindex" in url for url in somebody.asked)
                assert loaded == (name == "search.html")
                outline = somebody.page.evaluate(OUTLINE)
                levels = outline["levels"]
                if name not in MADE:
                    assert levels[0] == 1
                    assert levels.count(1) == 1
                    assert [(a, b) for a, b in itertools.pairwise(levels) if b > a + 1] == []
                assert outline["undescribed"] == []
                assert outline["language"] == next(
                    (x for x in re.split("[/.]", name) if x in LANGUAGES), "en"
                )
                titles.append(outline["title"])
    assert len(titles) == len(pages)
    assert len(set(titles)) > 0.9 * len(titles)


def test_every_lesson_has_a_page(pages):
    paths = (ROOT / "notebooks").rglob("*.ipynb")
    lessons = {path.relative_to(ROOT).with_suffix(".html").as_posix() for path in paths}
    assert {name for name in lessons if ".ipynb_checkpoints" not in name} <= set(pages)


def test_the_reference_has_every_public_name(site):
    named = {"distlab", *(f"distlab.{name}" for name in dir(distlab))}
    for place in sorted(named & {path.stem for path in site.glob("docs/site/api/*.html")}):
        module = distlab if place == "distlab" else getattr(distlab, place.partition(".")[2])
        text = (site / "docs" / "site" / "api" / f"{place}.html").read_text()
        assert [name for name in module.__all__ if f'id="{place}.{name}"' not in text] == [], place


def test_axe_finds_nothing_to_mend(chromium, address, subtests):
    from axe_playwright_python.sync_playwright import Axe

    tags = {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}
    colours = {"type": "rule", "values": ["color-contrast"]}  # all else is as on the light page
    axe = Axe()
    with reader(chromium, address) as somebody:
        for name in LOOKED_AT:
            somebody.open(name)
            somebody.page.wait_for_load_state("networkidle")
            for theme, rules in (("light", tags), ("dark", colours)):
                with subtests.test(f"{name}, {theme}"):
                    somebody.system(theme)
                    options = {"resultTypes": ["violations"], "runOnly": rules}
                    found = axe.run(somebody.page, options=options).response["violations"]
                    assert {rule["id"]: rule["nodes"][0]["html"] for rule in found} == {}


def test_search_finds_in_every_language(somebody):
    assert "notebooks/03_model_parallel_keras.html" in somebody.search("LayoutMap")
    assert "docs/glossary.html#all-reduce" in somebody.search("all-reduce")
    assert somebody.page.locator("#search-results li p.context").count() > 5
    assert "notebooks/10_pytorch_ddp.html" in somebody.search("reduce_scatter")
    for word, language in (("체크포인트", "ko"), ("랭크", "ko"), ("勾配", "ja"), ("損失", "ja")):
        assert [path for path in somebody.search(word) if language in re.split("[/.]", path)], word
    assert [width for width in WIDTHS if somebody.overflows(width)] == []
    assert somebody.search("zyzzyva") == []


def test_python_and_the_page_split_a_query_alike(somebody):
    search = tool("site_search").Search({})
    somebody.open("search.html")
    for query in (
        "all-reduce",
        "LayoutMap",
        "체크포인트를",
        "勾配の計算",
        "a 랭크 b_c",
        "層",
        "-x",
    ):
        found = somebody.page.evaluate("query => splitQuery(query)", query)
        assert found
        assert set(found) <= set(search.split(query))


def test_an_address_that_leads_nowhere_shows_a_page_that_leads_back(somebody, address):
    for path in ("nothing.html", "notebooks/99.html", "fr/notebooks/x.html"):
        somebody.open(path)
        page = somebody.page
        assert page.locator(".bd-article h1").inner_text().startswith("There is no such page")
        assert page.evaluate("getComputedStyle(document.body).fontFamily") != "Times New Roman"
        link = page.locator(".bd-article").get_by_role("link", name="The front page")
        assert link.evaluate("link => link.href") == f"{address}README.html"
        assert [line for line in somebody.trouble if "404" not in line and path not in line] == []
        somebody.trouble.clear()  # the address itself


CUT = """() => {
    const room = document.querySelector(".bd-article").getBoundingClientRect().right + 1;
    const wide = (one) => one.scrollWidth > one.clientWidth + 1 && one.clientWidth > 0;
    return [...document.querySelectorAll(".bd-article :is(pre, table, img, .text_html)")]
        .filter((one) => wide(one) || one.getBoundingClientRect().right > room)
        .map((one) => `${one.tagName}: ${one.textContent.slice(0, 80)}`);
}"""


def test_on_paper_nothing_is_cut_off_or_folded(somebody, subtests):
    page = somebody.page
    page.set_viewport_size({"width": 718, "height": 1000})  # A4 with margins of 10 mm
    for name in ("notebooks/21_what_fits.html", "notebooks/23_puzzles.html", "docs/costs.html"):
        with subtests.test(name):
            page.emulate_media(media="screen")
            somebody.open(name)
            folded = page.locator(".bd-article details:not([open]) > :not(summary)")
            seen = "all => all.filter((one) => one.checkVisibility()).length"
            assert folded.count() > 0 or name == "docs/costs.html"
            assert folded.evaluate_all(seen) == 0
            page.emulate_media(media="print")
            assert folded.evaluate_all(seen) == folded.count()
            assert page.evaluate(CUT) == []


def test_the_theme_toggles_and_pictures_grow_lighter(somebody):
    somebody.open(LESSON)
    page = somebody.page
    html = page.locator("html")
    assert html.get_attribute("data-theme") == "light"
    page.get_by_role("button", name="Color mode").first.click()
    page.get_by_role("button", name="Dark").first.click()
    assert html.get_attribute("data-theme") == "dark"
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"
    styles = page.locator(".bd-article img").evaluate_all(
        "images => images.map(i => getComputedStyle(i)).map(s => [s.filter, s.backgroundColor])"
    )
    assert len(styles) > 5
    assert {tuple(style) for style in styles} == {("brightness(1.05)", INVISIBLE)}
    somebody.open("docs/glossary.html")  # and the choice is kept
    assert html.get_attribute("data-theme") == "dark"


def test_folded_cells_and_answers_unfold_and_what_answers_a_prediction_does(somebody, site):
    words = tool("site_pages").WORDS
    cells = tool("cells")
    notebook = nbformat.read(ROOT / "notebooks" / f"{Path(LESSON).stem}.ipynb", as_version=4)
    predicted = sum("collapsed" in cell.metadata for cell in notebook.cells)
    assert predicted > 5
    for language in ("en", *LANGUAGES):
        page = LESSON if language == "en" else LESSON.replace("/", f"/{language}/")
        assert (site / page).read_text().count(f">{words[language][1][0]}<") == predicted
    somebody.open(LESSON)
    folded = somebody.page.locator(".bd-article details")
    hidden = sum(cell.cell_type == "code" and cells.is_folded(cell) for cell in notebook.cells)
    answers = sum(cell.source.count("<details>") for cell in notebook.cells)
    both = [c for c in notebook.cells if "collapsed" in c.metadata and cells.is_folded(c)]
    assert folded.count() == hidden + answers + predicted - len(both) and both
    for number in (0, folded.count() - 1):
        one = folded.nth(number)
        inside = one.locator("pre").first
        assert not inside.is_visible()
        one.locator("summary").click()
        assert inside.is_visible()
    cell = somebody.page.locator(".cell:has(> details.below-input)").first
    output = cell.locator(".cell_output")
    assert cell.locator(".cell_input").is_visible()  # only the answer is folded
    assert not output.is_visible()
    cell.locator("details.below-input > summary").press("Enter")
    assert output.is_visible()
    cell.get_by_text("Hide the answer").click()
    assert not output.is_visible()


def test_outputs_in_markdown_have_tables(site, pages):
    assert [name for name in pages if "<p>| " in (site / name).read_text()] == []
    text = (site / "notebooks" / "15_one_model_every_way.html").read_text()
    assert re.search(r'class="cell_output[^>]*>\s*<div class="pst-scroll[^>]*><table', text)


@pytest.mark.parametrize("width", WIDTHS)
def test_menu_contents_and_search_open_at_every_width(chromium, address, width):
    with reader(chromium, address, width) as somebody:
        somebody.open(LESSON)
        page = somebody.page
        lessons = page.locator(".bd-docs-nav").get_by_text("23. Puzzles")
        if width == 1400:
            assert lessons.is_visible()
            assert page.locator("nav.page-toc").is_visible()
        else:
            page.get_by_role("button", name="primary sidebar").locator("visible=true").click()
            page.locator("#pst-primary-sidebar-modal[open]").wait_for()
            assert lessons.is_visible()
            page.keyboard.press("Escape")
            page.locator(".secondary-toggle").locator("visible=true").click()
            page.locator("#pst-secondary-sidebar-modal[open] nav.page-toc").wait_for()
            page.keyboard.press("Escape")
            page.get_by_role("button", name="Search").locator("visible=true").first.click()
            page.locator("#pst-search-dialog input").wait_for()
        assert somebody.trouble == []


def test_the_keyboard_s_place_is_seen_on_every_button_above_a_page(somebody):
    somebody.open(LESSON)
    page = somebody.page
    seen = {}
    for _ in range(150):
        page.keyboard.press("Tab")
        name, style = page.evaluate("""() => {
            const one = document.activeElement;
            const within = one.closest(".bd-header-article");
            return [within ? one.outerHTML.slice(0, 120) : "", getComputedStyle(one).outlineStyle];
        }""")
        if name:
            seen[name] = style
    assert len(seen) >= 4
    assert set(seen.values()) == {"solid"}, seen


def test_a_word_of_the_glossary_says_what_it_means(somebody):
    somebody.open("notebooks/00_start_here.html")
    word = somebody.page.locator("a[href*='glossary.html#mesh']").first
    assert word.get_attribute("title").startswith("Devices arranged")


def test_a_button_copies_the_code_of_a_cell_and_what_stands_behind_prompts(somebody):
    somebody.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    copied = []
    for name, within in ((LESSON, "div.cell:not(.tag_hide-input) .cell_input"), (API, "dl.py")):
        somebody.open(name)
        assert somebody.page.locator(".cell_output button.copybtn").count() == 0
        block = somebody.page.locator(f"{within} div.highlight").first
        block.locator("button.copybtn").focus()
        somebody.page.keyboard.press("Enter")
        block.locator("button.copybtn.success").wait_for()
        copied.append(somebody.page.evaluate("navigator.clipboard.readText()"))
        shown = block.locator("pre").inner_text()
    notebook = nbformat.read(ROOT / "notebooks" / f"{Path(LESSON).stem}.ipynb", as_version=4)
    assert copied[0] in [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    assert ">>> " in shown
    assert ">>>" not in copied[1]
    assert all(f" {line}" in shown for line in copied[1].splitlines())


def test_download_gives_the_notebook_of_the_page(somebody, copy):
    somebody.open(LESSON)
    somebody.page.get_by_role("button", name="Download this page").click()
    link = somebody.page.locator("a.dropdown-item", has_text=".ipynb")
    assert link.is_visible()
    given = somebody.page.request.get(link.evaluate("link => link.href")).body()
    assert given == (copy / "notebooks" / f"{Path(LESSON).stem}.ipynb").read_bytes()


def test_a_stamped_lesson_has_a_button_for_colab_and_one_for_its_source(somebody):
    for name in (LESSON, LESSON.replace("/", "/ja/")):
        somebody.open(name)
        links = somebody.page.locator(".bd-header-article a[href]").evaluate_all(
            "links => links.map(link => link.href.replace(/[?].*/, ''))"
        )
        path = name.replace(".html", ".ipynb")
        assert f"https://colab.research.google.com/github/ada/lab/blob/main/{path}" in links
        assert f"https://github.com/ada/lab/blob/main/{path}" in links
        assert somebody.page.locator("img[src*='colab-badge']").count() == 0


def test_a_line_leads_to_the_same_page_in_the_other_languages(somebody):
    for name in ("README.html", LESSON):
        for language, said in LANGUAGES.items():
            somebody.open(name)
            somebody.page.locator(".bd-article").get_by_role("link", name=said).click()
            assert somebody.page.locator("html").get_attribute("lang") == language
            somebody.page.locator(".bd-article").get_by_role("link", name="English").click()
            assert somebody.page.url.endswith(name)
