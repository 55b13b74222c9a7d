#!/bin/sh
# A kernel that is restarted while a cell runs, as JupyterLab's Restart Kernel does.
#
# Seen with ipykernel 7.4.0, jupyter_client 8.10.0 and pyzmq 27.3.0: the restart goes well, and the kernel that ends
# writes a traceback to the terminal before it does: it has closed its socket, and then sends the reply of the
# interrupted cell, "ZMQError: Socket operation on non-socket" (seen 5 times of 5; with an idle kernel never).
# Fails if a restart during a cell writes no such error, or if one while idle does.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -qq "ipykernel==7.4.0" "jupyter_client==8.10.0" "pyzmq==27.3.0"
cat > "$folder/restart.py" <<'PY'
import sys
from importlib.metadata import version
from pathlib import Path

from jupyter_client.manager import start_new_kernel

folder = Path(sys.argv[1])


def errors(code):
    """Restart a kernel that has begun to run some code, and count the errors that it has written."""
    with (folder / "said").open("w+") as said:
        manager, client = start_new_kernel(kernel_name="python3", stdout=said, stderr=said)
        client.execute(code)
        while client.get_iopub_msg(timeout=60)["msg_type"] != "stream":
            pass
        if "sleep" not in code:
            client.get_shell_msg(timeout=60)
        manager.restart_kernel()
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    return (folder / "said").read_text().count("ZMQError: Socket operation on non-socket")


busy = [errors("import time; print('here'); time.sleep(60)") for _ in range(5)]
idle = [errors("print('here')") for _ in range(2)]
print("ipykernel", version("ipykernel"), "errors while a cell runs:", *busy, " while idle:", *idle)
assert busy == [1] * 5 and idle == [0] * 2
PY
JUPYTER_PATH="$folder" "$folder/venv/bin/python" "$folder/restart.py" "$folder"
