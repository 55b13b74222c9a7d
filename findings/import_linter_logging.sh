#!/bin/sh
# importlinter.cli.lint_imports called from Python, in a process whose own loggers exist already.
#
# Seen with import-linter 2.16: the contract is kept and 0 returned, and every logger that existed before
# the call is disabled afterwards (logging.config.dictConfig disables them unless it is told not to), so the
# caller's warnings go nowhere. Fails if they are heard.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -qq "import-linter==2.16"
cd "$folder"
mkdir house
touch house/__init__.py house/attic.py house/cellar.py
cat > .importlinter <<'INI'
[importlinter]
root_package = house

[importlinter:contract:layers]
name = The cellar does not need the attic
type = layers
layers =
    house.attic
    house.cellar
INI
cat > caller.py <<'PY'
import logging
from importlib.metadata import version

from importlinter.cli import lint_imports

log = logging.getLogger("caller")
assert log.isEnabledFor(logging.WARNING)
kept = lint_imports(no_cache=True) == 0
print(f"import-linter {version('import-linter')}: kept {kept}, the caller's logger is disabled: {log.disabled}")
assert kept and log.disabled
PY
PYTHONPATH=. venv/bin/python caller.py
