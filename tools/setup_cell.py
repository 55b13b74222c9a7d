"""The first code cell of every notebook: it installs distlab where it is missing, as in Colab.

It has two forms. Stamped, it knows where on GitHub the project is, and installs from there. Not
stamped, it can't know, stops Run All, and says which line does it. Neither does anything where
distlab is installed. A folder named distlab, a clone perhaps, is no installed package: it has no
origin.
"""

import re

# Colab shows the title alone, JupyterLab folds the cell to its first line.
METADATA = {"cellView": "form", "jupyter": {"source_hidden": True}}

# A UsageError is shown as one message, without a traceback, and stops Run All. In Colab
# !pip is the kernel's own, and %pip would say that a restart may be needed: here it is not.
_UNSTAMPED = r'''
# @title Set-up: checks that distlab is there
if not getattr(__import__("importlib.util").util.find_spec("distlab"), "origin", None):
    raise __import__("IPython").core.error.UsageError("""distlab is not installed. In Colab, run
this line in a new cell, with this notebook's repository for OWNER/NAME:
  !pip install -q git+https://github.com/OWNER/NAME\nThen choose Run all again.\nOn your own \
computer: run `make lab` in a clone, and open the notebook there.""")
'''

# -qq leaves pip its errors. With --no-input git fails where GitHub wants a password, as it does
# for a repository that is private or not there, instead of waiting for one.
_STAMPED = r'''
# @title Set-up: installs distlab where it is missing, as in Colab
if not getattr(__import__("importlib.util").util.find_spec("distlab"), "origin", None):
    !"{__import__("sys").executable}" -m pip install -qq --no-input ADDRESS
    if __import__("importlib").invalidate_caches() or _exit_code:  # noqa: F821
        raise __import__("IPython").core.error.UsageError("""distlab is missing; pip says why above.
Is there a network? Is the address spelled right, and public? Then choose Run all again.""")
'''


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
