#!/bin/sh
# Runs its arguments with a supported Python: PYTHON=..., or the environment's own, or one on PATH that runs.
found='' probe='import sys; v = sys.version_info[:3]
sys.exit(not (3, 11) <= v[:2] < (3, 14) and "is Python %d.%d.%d" % v)'
for candidate in "${PYTHON:-${0%/*}/../.venv/bin/python}" python3 python3.13 python3.12 python3.11 python; do
    said=$("$candidate" -c "$probe" 2>&1 </dev/null) && exec "$candidate" "$@"
    case $said in is\ Python*) ;; *) said=${PYTHON:+does not run} ;; esac
    found="$found${said:+
  ${PYTHON:+PYTHON=}$candidate $said}"
    [ -z "${PYTHON:-}" ] || break; done
echo "distlab needs Python 3.11, 3.12 or 3.13. Found:${found:-
  no Python at all}
Install one of them, or name it: make PYTHON=/path/to/python3.12 ..." >&2; exit 1
