#!/bin/sh
# A cell that may fail has the tag raises-exception: JupyterLab's Run All and nbclient go on after it.
#
# Seen with nbval 0.11.0 and ipykernel 7.4.0, for a cell with that tag whose assert fails. If it was never run in the
# file (execution_count is null), its test passes. If it was run, and stores no output, its test fails without the
# error's message: "Unexpected output fields from running code: {'evalue', 'ename'}".
# Fails if the first is noticed, or if the second shows the message.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -qq "nbval==0.11.0" "ipykernel==7.4.0" "pytest==9.2.0"
cd "$folder"
cat > make.py <<'PY'
from pathlib import Path

from nbformat import v4, write

for name, count in {"never_run": None, "was_run": 1}.items():
    cell = v4.new_code_cell("assert 1 == 2, 'the reason'", execution_count=count)
    cell.metadata.tags = ["raises-exception"]
    write(v4.new_notebook(cells=[cell]), Path(f"{name}.ipynb"))
PY
venv/bin/python make.py
venv/bin/pytest -q --nbval --nbval-current-env never_run.ipynb > never_run.txt && echo "never run: passes"
venv/bin/pytest -q --nbval --nbval-current-env was_run.ipynb > was_run.txt && exit 1
grep "Unexpected output fields" was_run.txt
! grep "AssertionError: the reason" was_run.txt
echo "nbval $(venv/bin/python -c 'from importlib.metadata import version; print(version("nbval"))'), as it was seen"
