"""The first code cell of every notebook: it installs distlab where it is missing, as in Colab.

It has two forms. Stamped, it knows where on GitHub the project is, and installs from there. Not
stamped, it can't know, stops Run All, and says which lines do it. Neither does anything where
distlab is installed. A folder named distlab, a clone perhaps, is no installed package: it has no
origin.
"""

import re

# Colab shows the title alone, JupyterLab folds the cell to its first line.
METADATA = {"cellView": "form", "jupyter": {"source_hidden": True}}

_UNSTAMPED = r'''
# @title Set-up: says how to install distlab where it is missing, as in Colab
assert getattr(__import__("importlib.util").util.find_spec("distlab"), "origin", None), """\
distlab is missing.\nPaste one of these into a new cell, run it, then run all cells again.
From GitHub:\n    %pip install git+https://github.com/OWNER/NAME\nIn a clone:\n    %pip install ..
From a wheel, which `python -m build --wheel` makes in a clone, in Colab:
    from google.colab import files; files.upload()\n    %pip install distlab-*.whl"""
'''

_STAMPED = r"""
# @title Set-up: installs distlab where it is missing, as in Colab
if not getattr(__import__("importlib.util").util.find_spec("distlab"), "origin", None):
    %pip install --quiet ADDRESS
    assert not _exit_code, "pip could not install distlab. It says why above."  # noqa: F821
    __import__("importlib").invalidate_caches()
"""


def setup_cell(address: str = "") -> str:
    """Returns the cell's source.

    Args:
        address: What pip installs distlab from; empty if that is not known.
    """
    return _STAMPED.strip().replace("ADDRESS", address) if address else _UNSTAMPED.strip()


def address_in(source: str) -> str | None:
    """Returns the address that a set-up cell knows, "" if none; None if it is another cell."""
    if source == setup_cell():
        return ""
    before, after = setup_cell("\0").split("\0")
    found = re.fullmatch(re.escape(before) + r"(\S+)" + re.escape(after), source)
    return found[1] if found else None
