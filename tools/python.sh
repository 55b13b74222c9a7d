#!/bin/sh
# Runs its arguments with the first Python that can make the environment.
for candidate in "${PYTHON:-}" python3 python3.13 python3.12 python3.11 python; do
    if [ -n "$candidate" ] && "$candidate" -c 'import sys, ensurepip; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null; then
        exec "$candidate" "$@"
    fi
done
echo "distlab needs Python 3.11, 3.12 or 3.13." >&2
exit 1
