"""How Sphinx makes the site; tools/site_build.py runs it.

The project's folder is what Sphinx reads, as it is on GitHub: links between pages are those of the
files. tools/site_pages.py changes on the way what Sphinx would show differently than JupyterLab.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

import site_pages  # noqa: E402 - found by the line above

project = "distlab"
author = "the authors of distlab"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
root_doc = "README"
include_patterns = ["README*.md", "docs/**.md", "notebooks/**.ipynb"]
exclude_patterns = [".*", "**/.ipynb_checkpoints", "build", "distlab", "tests", "tools", "work"]
nitpicky = True
nitpick_ignore_regex = [("py:(class|exc)", ".*")]  # prose that napoleon takes for a type
# Cells with shell commands or YAML are coloured as far as they are Python.
suppress_warnings = ["misc.highlighting_failure"]

# Notebooks: their stored outputs, folded cells, and anchors as GitHub makes them.
nb_execution_mode = "off"
nb_merge_streams = True
nb_render_markdown_format = "myst"  # outputs have tables
nb_mime_priority_overrides = [("html", "text/html", 0), ("html", "image/png", 5)]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4

# Docstrings: a word in single backticks is code, as it is in Markdown.
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "none"
napoleon_numpy_docstring = False
napoleon_custom_sections = [("Attributes", "params_style")]
napoleon_use_rtype = False
toc_object_entries_show_parents = "hide"

# What a reader copies: of an example with prompts the lines behind them, and no output of a cell.
copybutton_prompt_text = r">>> |\.\.\. "
copybutton_prompt_is_regexp = True
copybutton_selector = "div.highlight:not(.cell_output *) > pre"

html_theme = "sphinx_book_theme"
html_title = "distlab"
html_logo = html_favicon = "static/icon.svg"
html_context = {"default_mode": "auto"}
html_additional_pages = {"404": "404.html"}
html_static_path = ["static"]
html_css_files = ["site.css"]
templates_path = ["templates"]
html_show_sphinx = False
html_show_copyright = False
html_math_renderer = "mathml"
html_theme_options = {
    "logo": {"text": "distlab"},
    "home_page_in_toc": True,
    "use_fullscreen_button": False,
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
    "footer_content_items": [],
}
if repository := site_pages.repository():
    html_theme_options |= {
        "repository_url": f"https://github.com/{repository}",
        "repository_branch": "main",
        "use_repository_button": True,
        "use_source_button": True,
        "launch_buttons": {"colab_url": "https://colab.research.google.com"},
    }
setup = site_pages.setup
