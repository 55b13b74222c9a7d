"""The site as readers see it: made once from what is stored, then looked at in a browser."""

import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from _browser import browser
from _site import ALONE, Reader, build, reader, served
from _tools import ROOT, tool

pytestmark = pytest.mark.needs("browser")
LESSON = "notebooks/01_devices_meshes_layouts.html"
GLOSSARY = "docs/glossary.html"
API = "api/distlab.datasets.html"
LANGUAGES = tool("site_source").languages()
WIDTHS = (390, 800, 1400)
MADE = ("search.html", "genindex.html", "py-modindex.html")
LOOKED_AT = (
    "index.html",
    "notebooks/00_start_here.html",
    API,
    "works_with.html",
    "docs/house.html",
    LESSON,
    "notebooks/12_pytorch_beyond_replication.html",
    "search.html?q=LayoutMap",
    *(f"{language}/index.html" for language in LANGUAGES[1:]),
)
"""Pages of each kind, which axe goes through; the others are made alike."""
SEARCHES = {"en": "LayoutMap", "ko": "체크포인트", "ja": "勾配"}
"""A word that a search in each language finds."""
INVISIBLE = "rgba(0, 0, 0, 0)"


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    return build(tmp_path_factory.mktemp("site"))


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
    """All in English; of each other language those that are translated, and one that is not."""
    names = [path.relative_to(site).as_posix() for path in tool("site_links").pages(site)]
    kept = [name for name in names if name.partition("/")[0] not in LANGUAGES]
    for language in LANGUAGES[1:]:
        english = [f"{name}.html" for name in tool("site_source").Source(language).english]
        inside = {name.partition("/")[2] for name in names if name.startswith(f"{language}/")}
        kept += [f"{language}/{name}" for name in sorted(inside - set(english[1:]))]
    return kept


OUTLINE = """() => {
    const all = (what, from = document) => [...from.querySelectorAll(what)];
    const article = document.querySelector("article");
    const isBare = (one) => !(article?.contains(one) ? one.alt : one.hasAttribute("alt"));
    return {
        levels: all("h1, h2, h3, h4, h5, h6", article ?? document)
            .map((one) => Number(one.tagName[1])),
        undescribed: all("img").filter(isBare).map((one) => one.src.slice(0, 80)),
        described: document.querySelector("meta[name=description]")?.content ?? "",
        title: document.title,
        language: document.documentElement.lang,
    };
}"""


def test_every_page_opens_without_errors_or_another_network_fits_and_is_described(
    chromium, address, pages, subtests
):
    titles = []
    with reader(chromium, address) as somebody:
        for name in pages:
            with subtests.test(name):
                somebody.open(name)
                wide = [width for width in WIDTHS if somebody.overflows(width)]
                assert wide == []
                assert somebody.trouble == []
                somebody.trouble.clear()
                outline = somebody.page.evaluate(OUTLINE)
                levels = outline["levels"]
                if Path(name).name not in MADE:
                    assert levels[0] == 1
                    assert levels.count(1) == 1
                    assert [(a, b) for a, b in itertools.pairwise(levels) if b > a + 1] == []
                    assert len(outline["described"]) > 20
                assert outline["undescribed"] == []
                language = name.partition("/")[0]
                assert outline["language"] == (language if language in LANGUAGES else "en")
                titles.append((language, outline["title"]))
    assert len(titles) == len(pages)
    assert len(set(titles)) > 0.9 * len(titles)


def test_every_notebook_has_a_page_which_the_one_before_leads_to(site):
    names = [path.stem for path in sorted((ROOT / "notebooks").glob("*.ipynb"))]
    for name, after in itertools.pairwise(names):
        text = (site / "notebooks" / f"{name}.html").read_text()
        (found,) = re.findall(r'<a class="right-next"\s+href="([^"]+)"', text)
        assert found in (f"{after}.html", "../start.html"), name


def test_what_the_languages_share_is_there_once_and_nothing_is_there_for_developers(site):
    files = {path.relative_to(site): path for path in site.rglob("*") if path.is_file()}
    content = {name: path.read_bytes() for name, path in files.items() if name.suffix != ".html"}
    english = {found for name, found in content.items() if name.parts[0] not in LANGUAGES}
    assert len(english) > 100
    assert [
        name for name in content if name.parts[0] in LANGUAGES and content[name] in english
    ] == []
    assert [name for name in files if name.name.endswith((".map", ".buildinfo"))] == []


def test_axe_finds_nothing_to_mend(chromium, address, subtests):
    from axe_playwright_python.sync_playwright import Axe

    tags = {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]}
    colours = {"type": "rule", "values": ["color-contrast"]}  # all else is as on the light page
    axe = Axe()
    with reader(chromium, address) as somebody:
        for name in LOOKED_AT:
            somebody.open(name)
            if "?" in name:
                somebody.found()
            for theme, rules in (("light", tags), ("dark", colours)):
                with subtests.test(f"{name}, {theme}"):
                    somebody.system(theme)
                    options = {"resultTypes": ["violations"], "runOnly": rules}
                    found = axe.run(somebody.page, options=options).response["violations"]
                    assert {rule["id"]: rule["nodes"][0]["html"] for rule in found} == {}


def test_search_finds_in_every_language_and_says_how_many_or_what_to_do(somebody, subtests):
    words = tool("site_pages").WORDS
    for language in LANGUAGES:
        below = "" if language == "en" else f"{language}/"
        with subtests.test(language):
            said = somebody.page.locator("p.search-summary")
            found = somebody.search(SEARCHES[language], below)
            assert 1 <= len(found) < 60
            assert str(len(found)) in said.inner_text()
            assert any(path.startswith(below) for path in found)
            assert [width for width in WIDTHS if somebody.overflows(width)] == []
            assert somebody.search("zyzzyva", below) == []
            assert said.inner_text() == words[language]["nothing found"]
    assert "notebooks/03_model_parallel_keras.html" in somebody.search("LayoutMap")


def test_search_finds_only_pages_with_the_word_and_those_about_a_phrase_first(somebody, site):
    found = somebody.search("all-reduce")
    assert "docs/glossary.html#all-reduce" in found
    named = {path.partition("#")[0] for path in found}
    assert len(named) > 10
    for path in named:
        assert "all-reduce" in (site / path).read_text().lower(), path
    assert set(somebody.search("allreduce")) >= set(found)
    within = {path.partition("#")[0] for path in somebody.search("reduce_scatter")}
    lessons = ("10_pytorch_ddp", "17_collectives_by_hand", "18_layers_by_hand")
    assert {f"notebooks/{name}.html" for name in lessons} <= within
    found = [path.partition("#")[0] for path in somebody.search("ring attention")]
    assert list(dict.fromkeys(found))[:2] == [  # a heading has it, then many sentences
        "notebooks/23_puzzles.html",
        "notebooks/20_context_and_experts_by_hand.html",
    ]
    excerpt = somebody.page.locator("#search-results li:has(p.context) p.context").first
    assert "ring attention" in excerpt.inner_text().lower()


def test_a_search_reads_ten_pages_and_no_other_page_loads_the_search(somebody):
    asked: list[str] = []
    somebody.page.on("request", lambda request: asked.append(request.url))
    somebody.open(LESSON)
    assert not any("search" in url or "fontawesome.js" in url for url in asked)
    somebody.open("search.html?q=all-reduce")
    asked.clear()
    assert len(somebody.found()) > 20
    assert len([url for url in asked if url.partition("?")[0].endswith(".html")]) <= 10
    assert somebody.page.locator("#search-results li p.context").count() > 5


def test_python_and_the_page_split_a_query_alike(somebody):
    split = tool("site_search")
    somebody.open("search.html")
    for query in (
        "all-reduce",
        "LayoutMap",
        "체크포인트를",
        "勾配の計算",
        "a 랭크 b-c-d _x",
        "層",
        "-x",
    ):
        found = somebody.page.evaluate("query => splitQuery(query)", query)
        assert found == split.query_words(query)


def test_an_address_that_leads_nowhere_shows_a_page_that_leads_back(somebody, address):
    for path in ("nothing.html", "notebooks/99.html", "fr/notebooks/x.html"):
        somebody.open(path)
        page = somebody.page
        assert page.locator(".bd-article h1").inner_text().startswith("There is no such page")
        assert page.evaluate("getComputedStyle(document.querySelector('#pst-header')).display") == (
            "none"  # the style is there
        )
        link = page.locator(".bd-article").get_by_role("link", name="the front page")
        assert link.evaluate("link => link.href") == f"{address}index.html"
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
            somebody.system("dark")
            folded = page.locator(".bd-article details:not([open])")
            before = folded.count()
            assert before > 0 or name == "docs/costs.html"
            page.emulate_media(media="print")
            page.evaluate("dispatchEvent(new Event('beforeprint'))")
            assert folded.count() == 0
            assert page.evaluate(CUT) == []
            assert page.locator("html").get_attribute("data-theme") == "light"
            page.evaluate("dispatchEvent(new Event('afterprint'))")
            assert page.locator("html").get_attribute("data-theme") == "dark"
            assert folded.count() == before


def test_the_side_bar_shows_the_page_that_is_open(somebody):
    seen = """() => {
        const place = document.querySelector(".bd-docs-nav a.current").getBoundingClientRect();
        return place.top > 100 && place.bottom < window.innerHeight;
    }"""
    for name in (LESSON, "notebooks/23_puzzles.html", "docs/house.html", "lessons.html"):
        somebody.open(name)
        assert somebody.page.evaluate(seen), name


def test_the_picture_of_a_real_run_is_whole_until_it_comes_into_view(chromium, address):
    with reader(chromium, address) as somebody:
        somebody.page.emulate_media(reduced_motion="no-preference")
        somebody.open("index.html")
        picture = somebody.page.locator("figure.real-run")
        moving = """one => one.getAnimations({ subtree: true })
            .filter((motion) => motion.animationName).length"""
        assert picture.evaluate(moving) == 0
        picture.scroll_into_view_if_needed()
        somebody.page.locator("figure.real-run.in-view").wait_for()
        assert picture.evaluate(moving) == 1


@pytest.mark.skipif(len(LANGUAGES) == 1, reason="nothing is translated yet")
def test_a_translated_page_has_the_anchors_of_the_english_one(site):
    def anchors(path: str) -> list[str]:
        return re.findall(r'<section [^>]*id="([^"]+)"', (site / path).read_text())

    for language in LANGUAGES[1:]:
        source = tool("site_source").Source(language)
        pages = {str(Path(name).with_suffix("")) for name in source.titles}
        for page in sorted(pages - set(source.english)):
            assert anchors(f"{language}/{page}.html") == anchors(f"{page}.html"), page


def test_the_theme_toggles_and_pictures_stay_as_they_are(somebody):
    somebody.open(LESSON)
    page = somebody.page
    html = page.locator("html")
    assert html.get_attribute("data-theme") == "light"
    page.get_by_role("button", name="Color mode").click()
    page.get_by_role("button", name="Dark").click()
    assert html.get_attribute("data-theme") == "dark"
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"
    styles = page.locator(".bd-article img").evaluate_all(
        "images => images.map(i => getComputedStyle(i)).map(s => [s.filter, s.backgroundColor])"
    )
    assert len(styles) > 5
    assert {tuple(style) for style in styles} == {("none", INVISIBLE)}
    somebody.open(GLOSSARY)  # and the choice is kept
    assert html.get_attribute("data-theme") == "dark"


def test_folded_cells_and_answers_unfold_and_what_answers_a_prediction_does(somebody, site):
    words = tool("site_pages").WORDS
    notebook = nbformat.read(ROOT / "notebooks" / f"{Path(LESSON).stem}.ipynb", as_version=4)
    predicted = len(tool("site_source").answers(notebook.cells))
    assert predicted > 5
    for language in LANGUAGES:
        text = (site / ("" if language == "en" else language) / LESSON).read_text()
        assert text.count(f">{words[language]['show answer']}<") == predicted
    somebody.open(LESSON)
    folded = somebody.page.locator(".bd-article details")
    is_folded = tool("cells").is_folded
    hidden = sum(cell.cell_type == "code" and is_folded(cell) for cell in notebook.cells)
    answers = sum(cell.source.count("<details>") for cell in notebook.cells)
    assert folded.count() == hidden + answers + predicted
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
    cell.get_by_text("Show the answer").focus()
    cell.locator("details.below-input > summary").press("Enter")
    assert output.is_visible()
    cell.get_by_text("Hide the answer").click()
    assert not output.is_visible()


def test_outputs_in_markdown_have_tables(site, pages):
    assert [name for name in pages if "<p>| " in (site / name).read_text()] == []
    text = (site / "notebooks" / "15_one_model_every_way.html").read_text()
    assert re.search(r'class="cell_output[^>]*>\s*<div class="pst-scroll[^>]*><table', text)


@pytest.mark.parametrize(
    ("name", "width"), [(LESSON, 390), (LESSON, 800), (LESSON, 1400), (GLOSSARY, 800)]
)
def test_the_buttons_above_a_page_open_what_they_say(chromium, address, name, width):
    with reader(chromium, address, width) as somebody:
        somebody.open(name)
        page = somebody.page
        above = page.locator(".bd-header-article")
        assert page.locator(".primary-toggle").count() == 1  # the theme takes the first
        menu = above.get_by_role("button", name="primary sidebar")
        lessons = page.locator(".bd-docs-nav").get_by_text("23. Puzzles")
        for use in (menu.click, lambda: menu.press("Enter")):
            use()
            if width == 1400:
                lessons.wait_for(state="hidden")
                use()
                lessons.wait_for(state="visible")
            else:
                page.locator("#pst-primary-sidebar-modal[open]").wait_for()
                assert lessons.is_visible()
                page.keyboard.press("Escape")
                lessons.wait_for(state="hidden")
        contents = above.locator(".secondary-toggle")
        assert contents.is_visible() == (width < 1200)
        if width < 1200:
            contents.click()
            page.locator("#pst-secondary-sidebar-modal[open] nav.page-toc").wait_for()
            page.keyboard.press("Escape")
        if width < 992:  # else it is in the side bar
            above.get_by_role("button", name="Search").click()
            page.locator("#pst-search-dialog input").wait_for()
            page.keyboard.press("Escape")
        assert above.get_by_role("button", name="Color mode").is_visible()
        assert somebody.trouble == []


def test_the_keyboard_s_place_is_seen_on_every_button_above_a_page(somebody):
    somebody.open(LESSON)
    page = somebody.page
    page.locator(".bd-header-article .primary-toggle").focus()
    seen = {}
    for _ in range(12):
        page.keyboard.press("Shift+Tab")
    for _ in range(40):
        page.keyboard.press("Tab")
        name, style, width = page.evaluate("""() => {
            const one = document.activeElement;
            const style = getComputedStyle(one);
            const within = one.closest(".bd-header-article");
            const name = within ? one.outerHTML.slice(0, 120) : "";
            return [name, style.outlineStyle, style.outlineWidth];
        }""")
        if name:
            seen[name] = (style, width)
    assert len(seen) >= 4
    assert set(seen.values()) == {("solid", "3px")}, seen


def test_no_table_is_cut_off_and_one_that_scrolls_keeps_its_first_column(somebody):
    page = somebody.page
    for name, width in ((GLOSSARY, 1400), ("works_with.html", 1400), ("field.html", 1400)):
        page.set_viewport_size({"width": width, "height": 900})
        somebody.open(name)
        assert page.locator(".bd-article table.scrolls").count() == 0, name
    for name in (GLOSSARY, "works_with.html", "field.html"):
        page.set_viewport_size({"width": 390, "height": 900})
        somebody.open(name)
        tables = page.locator(".bd-article table")
        for table in tables.all():
            first, second = (table.locator("tr").nth(1).locator("> *").nth(n) for n in (0, 1))
            assert first.bounding_box()["width"] < 180, name
            assert second.bounding_box()["x"] < 300, name
            if table.evaluate("one => one.scrollWidth > one.clientWidth + 1"):
                at = first.bounding_box()["x"]
                fading = "one => getComputedStyle(one).maskImage"
                assert "gradient" in table.evaluate(fading)
                table.evaluate("one => { one.scrollLeft = one.scrollWidth; }")
                page.locator("table.at-end").first.wait_for()
                assert first.bounding_box()["x"] == at
                assert table.evaluate(fading) == "none"


def test_a_word_of_the_glossary_says_what_it_means(somebody):
    somebody.open("notebooks/00_start_here.html")
    meaning = somebody.page.get_by_role("tooltip")
    word = somebody.page.locator("a.term", has_text="mesh").first
    word.hover()
    assert meaning.inner_text().startswith("Devices arranged")
    somebody.page.keyboard.press("Escape")
    assert meaning.count() == 0
    word.focus()
    assert word.get_attribute("aria-describedby") == meaning.get_attribute("id")


def test_a_button_copies_the_code_of_a_cell_and_what_stands_behind_prompts(somebody):
    somebody.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    copied = []
    for name, within in ((LESSON, "div.cell:not(.tag_hide-input) .cell_input"), (API, "dl.py")):
        somebody.open(name)
        assert somebody.page.locator(".cell_output .copy-code").count() == 0
        block = somebody.page.locator(f"{within} div.highlight").first
        button = block.get_by_role("button", name="Copy the code")
        button.focus()
        somebody.page.keyboard.press("Enter")
        block.get_by_role("button", name="Copied").wait_for()
        copied.append(somebody.page.evaluate("navigator.clipboard.readText()"))
        shown = block.locator("pre").inner_text()
    notebook = nbformat.read(ROOT / "notebooks" / f"{Path(LESSON).stem}.ipynb", as_version=4)
    assert copied[0] in [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    assert ">>> " in shown
    assert ">>>" not in copied[1]
    assert all(f" {line}" in shown for line in copied[1].splitlines())


def test_download_gives_the_notebook_of_the_page(somebody, tmp_path):
    somebody.open(LESSON)
    with somebody.page.expect_download() as started:
        somebody.page.locator("a.btn[href$='.ipynb']").first.click()
    started.value.save_as(tmp_path / "lesson.ipynb")
    nbformat.validate(nbformat.read(tmp_path / "lesson.ipynb", as_version=4))
    stored = ROOT / "notebooks" / f"{Path(LESSON).stem}.ipynb"
    assert (tmp_path / "lesson.ipynb").read_bytes() == stored.read_bytes()


@pytest.mark.skipif(len(LANGUAGES) == 1, reason="nothing is translated yet")
def test_links_to_pages_that_are_in_english_say_so(somebody, address):
    for language in LANGUAGES[1:]:
        english = [f"{name}.html" for name in tool("site_source").Source(language).english]
        somebody.search("TPU", f"{language}/")
        results = somebody.page.locator("#search-results li > a")
        for name in ("results", "index.html"):
            if name == "index.html":
                somebody.open(f"{language}/{name}")
                results = somebody.page.locator("a.card, .bd-docs-nav a[href]:not([href='#'])")
            found = results.evaluate_all("links => links.map(a => [a.href, a.hreflang])")
            assert len(found) > 5
            for link, said in found:
                path = re.sub("[?#].*", "", link).removeprefix(f"{address}{language}/")
                assert (said == "en") == (path in english), link


@pytest.mark.skipif(len(LANGUAGES) == 1, reason="nothing is translated yet")
def test_the_language_switch_stays_on_the_page(somebody, subtests):
    source = tool("site_source")
    words = tool("site_pages").WORDS
    for language in LANGUAGES[1:]:
        english = source.Source(language).english
        for name in (LESSON, "notebooks/20_context_and_experts_by_hand.html"):
            with subtests.test(f"{language}: {name}"):
                section = "#exercises" if name == LESSON else ""
                somebody.open(f"{name}{section}")
                somebody.page.locator(
                    "button[aria-label='Language'], .dropdown-language-buttons button"
                ).first.click()
                somebody.page.get_by_text(words[language]["language"], exact=True).first.click()
                somebody.page.wait_for_url(f"**/{language}/{name}{section}")
                says = somebody.page.locator(".untranslated")
                assert says.count() == (name.removesuffix(".html") in english)
