"""The first code cell of every notebook: it installs distlab where it is missing, as in Colab.

It has two forms. Stamped, it knows where on GitHub the project is, and installs from there. Not
stamped, it can't know, stops Run All, and says which lines do it. Neither does anything where
distlab is installed. A folder named distlab, a clone perhaps, is no installed package: it has no
origin.
"""

import re

# Colab shows the title alone, JupyterLab folds the cell to its first line.
METADATA = {"cellView": "form", "jupyter": {"source_hidden": True}}

# A UsageError is shown as one message, without a traceback.
_UNSTAMPED = r'''
# @title Set-up: says how to install distlab where it is missing, as in Colab
if not getattr(__import__("importlib.util").util.find_spec("distlab"), "origin", None):
    raise __import__("IPython").core.error.UsageError("""distlab is not installed. Run one of these
in a new cell, then run all cells again.\nFrom GitHub; for OWNER/NAME put the notebook's repository:
  %pip install git+https://github.com/OWNER/NAME\nIn a clone:\n  %pip install ..\nWith a .whl file \
you were given:\n  from google.colab import files; files.upload()\n  %pip install distlab-*.whl""")
'''

# Not %pip, which always says that a restart may be needed: here it is not.
_STAMPED = r"""
# @title Set-up: installs distlab where it is missing, as in Colab
if not getattr(__import__("importlib.util").util.find_spec("distlab"), "origin", None):
    !"{__import__("sys").executable}" -m pip install --quiet --disable-pip-version-check \
        --root-user-action=ignore ADDRESS
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
