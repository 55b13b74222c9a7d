"""How Sphinx makes the site; tools/site_build.py runs it, once for each language."""

import json
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

import site_theme  # noqa: E402 - found by the line above

project = "distlab"
author = "the authors of distlab"
site_facts = json.loads(os.environ["DISTLAB_SITE_FACTS"])
language = os.environ["DISTLAB_SITE_LANGUAGE"]
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["**/.ipynb_checkpoints"]
# Cells with shell commands or YAML are coloured as far as they are Python.
suppress_warnings = ["misc.highlighting_failure"]

# Notebooks: their stored outputs, folded cells, and anchors as JupyterLab makes them.
nb_execution_mode = "off"
nb_merge_streams = True
nb_code_prompt_show = site_facts["words"]["show"]
nb_code_prompt_hide = site_facts["words"]["hide"]
nb_render_markdown_format = "myst"  # outputs have tables
nb_mime_priority_overrides = [("html", "text/html", 0), ("html", "image/png", 5)]
myst_enable_extensions = ["dollarmath", "attrs_block"]
myst_heading_anchors = 4
myst_heading_slug_func = "site_links.anchor"
myst_links_external_new_tab = False

# Docstrings: a word in single backticks is code, as it is in Markdown.
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "none"
toc_object_entries = False
napoleon_numpy_docstring = False
napoleon_custom_sections = [("Attributes", "params_style")]
napoleon_use_rtype = False

html_theme = "sphinx_book_theme"
html_title = "distlab"
html_context = {"default_mode": "auto"}
html_static_path = ["static"]
templates_path = ["templates"]
html_sidebars = {"**": ["brand.html", "search-button-field.html", "sbt-sidebar-nav.html"]}
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_favicon = "static/icon.svg"
html_search_scorer = str(ROOT / "docs" / "site" / "search.js")
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
html_math_renderer = "mathml"
html_last_updated_fmt = None
html_theme_options = {
    "article_header_end": ["article-header-buttons"],
    "use_download_button": False,
    "use_fullscreen_button": False,
    "show_navbar_depth": 1,
    "home_page_in_toc": True,
    "navigation_with_keys": False,
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
    "footer_content_items": [],
}
setup = site_theme.add_settings
