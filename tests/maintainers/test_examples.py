"""The examples in docstrings: of the public surface, which the site shows, and of the tools."""

import doctest
import inspect
import json
import os
import subprocess
import sys

from _tools import ROOT, TOOLS, tool

import distlab

RUN = """
import doctest, importlib, json, sys
found = {}
for name in sys.argv[1:]:
    tried = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    found[name] = [tried.attempted, tried.failed]
print(json.dumps(found))
"""


def public_modules() -> list[str]:
    """Where the public names are defined, and the modules that have them."""
    found = []
    names = [name for name in dir(distlab) if name not in distlab.__all__]
    there = [getattr(distlab, name) for name in names]
    for module in [distlab, *filter(inspect.ismodule, there)]:
        found.append(module.__name__)
        for thing in (getattr(module, each) for each in module.__all__):
            if defined := inspect.getmodule(thing):
                found.append(defined.__name__)
    return sorted({name for name in found if name.startswith("distlab")})


def test_they_give_what_they_show(tmp_path):
    names = public_modules()
    environment = {
        **os.environ,
        "KERAS_BACKEND": "jax",
        "PYTHONPATH": str(ROOT),
        "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
    }
    command = [sys.executable, "-c", RUN, *names]
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    said, _, last = ran.stdout.rstrip("\n").rpartition("\n")
    found = json.loads(last)
    assert sum(attempted for attempted, _ in found.values()) > 60
    assert {name: failed for name, (_, failed) in found.items() if failed} == {}, said


def test_the_examples_of_the_tools(subtests):
    for path in sorted(TOOLS.glob("*.py")):
        if ">>> " in path.read_text():
            with subtests.test(path.stem):
                assert doctest.testmod(tool(path.stem)).failed == 0
