#!/bin/sh
# Runs its arguments with a Python that distlab supports, or says which ones it found instead.
# PYTHON=... is taken at its word; without it the environment's own Python comes first.
# Every candidate is really run, because a name on PATH may stand for nothing.
here=$(dirname "$0")
probe='
import sys
print("%d.%d.%d" % sys.version_info[:3])
if not (3, 11) <= sys.version_info[:2] < (3, 14):
    sys.exit(3)
try:
    import ensurepip, venv
except ImportError:
    sys.exit(4)
'
found=
try() {
    version=$("$1" -c "$probe" 2>/dev/null </dev/null)
    case $? in
        0) return 0 ;;
        3) found="$found
  $1 is Python $version" ;;
        4) found="$found
  $1 is Python $version, but has no venv and ensurepip (on Debian and Ubuntu: apt install python3-venv)" ;;
    esac
    return 1
}

if [ -n "${PYTHON:-}" ]; then
    try "$PYTHON" && exec "$PYTHON" "$@"
    : "${found:=
  PYTHON=$PYTHON does not run}"
else
    for candidate in "$here/../.venv/bin/python" python3 python3.13 python3.12 python3.11 python; do
        try "$candidate" && exec "$candidate" "$@"
    done
    : "${found:=
  no Python at all}"
fi
echo "distlab needs Python 3.11, 3.12 or 3.13. Found:$found
Install one of them, or name it: make PYTHON=/path/to/python3.12 ..." >&2
exit 1
