"""What a reader meets before and beside the documentation: completion, help, and errors."""

import importlib
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import jedi
import pytest
from _tools import ROOT
from IPython.core.completer import IPCompleter, provisionalcompleter

import distlab
from distlab import checkpoints, collectives, costs, datasets, layouts, plots, puzzles

MODULES = {
    "distlab.checkpoints": checkpoints,
    "distlab.collectives": collectives,
    "distlab.costs": costs,
    "distlab.datasets": datasets,
    "distlab.layouts": layouts,
    "distlab.plots": plots,
    "distlab.puzzles": puzzles,
}
OFFERED = {name: {*module.__all__} for name, module in MODULES.items()}
OFFERED["distlab"] = {*distlab.__all__, *(name.partition(".")[2] for name in MODULES)}


# Completion.


def completions(code: str, use_jedi: bool) -> set[str]:
    """What IPython offers where `distlab` has been imported."""
    completer = IPCompleter(namespace={"distlab": distlab}, use_jedi=use_jedi)
    with provisionalcompleter():
        found = {each.text.lstrip(".") for each in completer.completions(code, len(code))}
    return {name for name in found if not name.startswith("_")}


def test_completion_offers_what_is_public_and_nothing_else(subtests):
    importlib.import_module("distlab.ranks")  # an attribute of the package from now on
    for module, names in OFFERED.items():
        for use_jedi in (True, False):
            with subtests.test(module, use_jedi=use_jedi):
                assert completions(f"{module}.", use_jedi) == names
        with subtests.test(module, of="dir"):
            found = dir(MODULES.get(module, distlab))
            assert {name for name in found if name[0] != "_"} == names


def test_completion_of_a_part_of_a_name(subtests):
    for code, name in [("distlab.data", "datasets"), ("distlab.layouts.dr", "draw")]:
        with subtests.test(code):
            assert {found.rpartition(".")[2] for found in completions(code, True)} == {name}


def test_an_editor_that_runs_nothing_knows_every_public_name():
    code = "import distlab\ndistlab."
    found = {each.name for each in jedi.Script(code).complete() if each.name[0] != "_"}
    assert OFFERED["distlab"] <= found
    # An editor looks into the package's directory as well; nothing else is to be seen.
    files = {path.stem for path in (ROOT / "distlab").iterdir()}
    assert found <= OFFERED["distlab"] | files


def test_an_editor_knows_what_a_submodule_holds(subtests):
    for module in sorted(MODULES):
        with subtests.test(module):
            found = {each.name for each in jedi.Script(f"import distlab\n{module}.").complete()}
            assert found >= OFFERED[module]


def test_type_checkers_take_the_types_from_the_package():
    assert (ROOT / "distlab" / "py.typed").exists()


# Errors.


def in_ipython(*cells: str, directory: Path) -> list[list[str]]:
    """The lines that IPython shows for cells that fail, without empty ones."""
    code = f"""
        from IPython.core.interactiveshell import InteractiveShell
        from traitlets.config import Config
        no_history = Config(HistoryManager={{"enabled": False}})
        shell = InteractiveShell.instance(colors="nocolor", config=no_history)
        for cell in {["import distlab", *cells]!r}:
            print("CELL")
            shell.run_cell(cell)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=os.environ | {"IPYTHONDIR": str(directory)},
        capture_output=True,
        text=True,
        check=True,
    )
    outputs = [output.splitlines() for output in done.stdout.split("CELL\n")[2:]]
    return [[line for line in output if line] for output in outputs]


def test_ipython_shows_a_failure_in_the_readers_terms(tmp_path):
    code = "def train():\n    1 / 0\ndistlab.run(train, 1, quiet=True)"
    (failed,) = in_ipython(code, directory=tmp_path)
    assert failed[:2] == [
        "line 3: distlab.run(train, 1, quiet=True)",
        "RankError: rank 0 of 1 failed: ZeroDivisionError: division by zero",
    ]
    assert str(ROOT) not in "".join(failed)


def test_messages_say_what_was_expected(subtests):
    args = "args must be a tuple or a list of the function's arguments, such as args=(5,), not"
    kwargs = 'kwargs must be a dict of keyword arguments, such as {"lr": 0.1}, not'
    for arguments, message in [
        ({"args": 5}, f"{args} 5 of type int."),
        ({"args": "abc"}, f"{args} 'abc' of type str."),
        ({"kwargs": 5}, f"{kwargs} 5 of type int."),
        ({"kwargs": [("a", 1)]}, f"{kwargs} [('a', 1)] of type list."),
        ({"framework": "tf"}, "Unknown framework 'tf': did you mean 'tensorflow'?"),
        ({"framework": "tensoflow"}, "Unknown framework 'tensoflow': did you mean 'tensorflow'?"),
        ({"framework": "keras"}, "Unknown framework 'keras': expected 'jax' or 'tensorflow' or"),
        ({"framework": "tensorflow", "roles": 3}, "roles must be a dict of numbers such as"),
        ({"framework": "tensorflow", "roles": {}}, "roles make no rank at all"),
        ({"env": ["A=1"]}, """env must be a dict such as {"NAME": "value"}, not ['A=1']."""),
        ({"cwd": 5}, "cwd must be a path (a string or a Path), not 5 of type int."),
        ({"cwd": ""}, "cwd is empty: name a file or a directory."),
        (
            {"start_method": "spwan"},
            "start_method must be 'fork' or 'spawn', not 'spwan'. Did you mean 'spawn'?",
        ),
        (
            {"framework": "tensorflow", "roles": {"cheif": 1}},
            "Unknown role 'cheif': expected chief, worker, ps, evaluator. Did you mean 'chief'?",
        ),
        (
            {"framework": "tensorflow", "roles": {"worker": "2"}},
            "roles['worker'] must be an int, not '2' of type str: write roles={'worker': 2}, say.",
        ),
        (
            {"kwargs": {"spe": " "}},
            "The arguments do not fit print(*args, sep=' ', end='\\n', file=None, flush=False): "
            "got an unexpected keyword argument 'spe'.",
        ),
        ({"start": 0}, "start must be a list of ranks, such as start=[0], not 0."),
        ({"target": print()}, "The target must be a function or a script's path, not None of type"),
    ]:
        with subtests.test(**arguments), pytest.raises((TypeError, ValueError)) as caught:
            distlab.launch(**{"target": print, "nprocs": 2} | arguments)
        assert str(caught.value).startswith(message)
        assert len(str(caught.value).splitlines()) == 1


def test_messages_of_pictures_tables_counts_and_places(subtests):
    mesh = layouts.Mesh((("data", 2),), ("cpu:0", "cpu:1"))
    for call, message in [
        (lambda: mesh.size("dta"), "not in the mesh, which has ['data']. Did you mean 'data'?"),
        (lambda: layouts.draw(mesh, title=3), "title must be a string, or a list of strings, not"),
        (lambda: layouts.table({"a": 3}), "'a' must be a variable or an array, not 3 of type int."),
        (lambda: checkpoints.replacing("").__enter__(), "The path to save to is empty: name a"),
        (lambda: distlab.run("train.py", 2, args="--lr 1"), 'such as args=["--lr", "0.1"], not'),
        (lambda: collectives.count(3), "write count(step, x, y), not count(step(x, y))"),
        (lambda: collectives.count_train_step(3, 4), "Expected a Keras model, not 3"),
        (lambda: collectives.sent_bytes("all-redcue", 8, 2), "Did you mean 'all-reduce'?"),
        (lambda: collectives.sent_bytes("allgather", 8, 2), "Did you mean 'all-gather'?"),
        (lambda: collectives.Communication(()).select("all_reduce"), "Did you mean 'all-reduce'?"),
        (lambda: datasets.load("MNIST"), "Did you mean 'mnist'?"),
        (lambda: distlab.launch(print, 2, engine="Ray"), "Did you mean 'ray'?"),
        (lambda: distlab.rank_info().prepare("pytorch"), "did you mean 'torch'?"),
    ]:
        with (
            subtests.test(message),
            pytest.raises((TypeError, ValueError), match=re.escape(message)),
        ):
            call()
