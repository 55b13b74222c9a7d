"""What a reader meets before and beside the documentation: completion, help, and errors."""

import contextlib
import doctest
import importlib
import inspect
import os
import pickle
import pydoc
import re
import subprocess
import sys
import textwrap
import traceback
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import jedi
import numpy as np
import pytest
from _tools import ROOT
from IPython.core.completer import IPCompleter, provisionalcompleter

import distlab
from distlab import checkpoints, collectives, costs, datasets, layouts, plots, puzzles, timeline

MODULES = {
    "checkpoints",
    "collectives",
    "costs",
    "datasets",
    "layouts",
    "plots",
    "puzzles",
    "timeline",
}
OFFERED = {
    "distlab": {*distlab.__all__, *MODULES},
    "distlab.checkpoints": {*checkpoints.__all__},
    "distlab.collectives": {*collectives.__all__},
    "distlab.costs": {*costs.__all__},
    "distlab.datasets": {*datasets.__all__},
    "distlab.layouts": {*layouts.__all__},
    "distlab.plots": {*plots.__all__},
    "distlab.puzzles": {*puzzles.__all__},
    "distlab.timeline": {*timeline.__all__},
}


# Completion.


def completions(code: str, use_jedi: bool) -> set[str]:
    """What IPython offers where `distlab` has been imported."""
    completer = IPCompleter(namespace={"distlab": distlab}, use_jedi=use_jedi)
    with provisionalcompleter():
        found = {each.text.lstrip(".") for each in completer.completions(code, len(code))}
    return {name for name in found if not name.startswith("_")}


def test_completion_offers_what_is_public_and_nothing_else(subtests):
    importlib.import_module(
        "distlab.launching.supervisor.supervisor"
    )  # an attribute of the package from now on
    for module, names in OFFERED.items():
        for use_jedi in (True, False):
            with subtests.test(module, use_jedi=use_jedi):
                assert completions(f"{module}.", use_jedi) == names
        with subtests.test(module, of="dir"):
            assert {name for name in dir(module_of(module)) if name[0] != "_"} == names


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
        code = f"import distlab\ndistlab.{module}."
        with subtests.test(module):
            found = {each.name for each in jedi.Script(code).complete()}
            assert found >= OFFERED[f"distlab.{module}"]


def test_type_checkers_take_the_types_from_the_package():
    assert (ROOT / "distlab" / "py.typed").exists()


# Help.


def module_of(name: str) -> object:
    return importlib.import_module(name)


def functions() -> Iterator[tuple[str, Callable[..., object]]]:
    """Every public function, and the methods of a job."""
    for module, names in OFFERED.items():
        for name in sorted(names):
            value = getattr(module_of(module), name)
            if inspect.isfunction(value):
                yield f"{module}.{name}", value
    for name, value in vars(distlab.Job).items():
        if inspect.isfunction(value) and name[0] != "_" and not name.startswith("on_"):
            yield f"distlab.Job.{name}", value


def test_signatures_show_names_and_defaults(subtests):
    for name, function in functions():
        with subtests.test(name):
            signature = inspect.signature(function)
            assert signature.return_annotation is inspect.Signature.empty
            for parameter in signature.parameters.values():
                assert parameter.annotation is inspect.Parameter.empty


def test_help_begins_with_what_a_function_does():
    lines = pydoc.plain(pydoc.render_doc(layouts.draw)).splitlines()
    assert lines[2:4] == [
        "draw(*objects, shape=None, title=None)",
        "    Draw meshes and layouts, side by side when there are several.",
    ]


def test_what_else_is_known_of_a_function_is_kept(subtests):
    for name, function in functions():
        with subtests.test(name):
            assert pickle.loads(pickle.dumps(function)) is function
            assert inspect.getsource(function).lstrip().startswith(("@", "def "))
            assert function.__doc__
            # As for any function, but what is imported for type checkers alone.
            with contextlib.suppress(NameError):
                assert "return" in typing.get_type_hints(function)


def test_doctest_finds_the_examples():
    found = doctest.DocTestFinder().find(importlib.import_module("distlab.layouts.readers"))
    assert [each.name for each in found if each.examples] == ["distlab.layouts.readers.layout_of"]


# Errors.


def frames(call: Callable[[], object], kind: type[BaseException]) -> list[str]:
    """The functions of a traceback, from the one that called."""
    with pytest.raises(kind) as caught:
        call()
    names = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    return names[names.index("call") :]


def test_an_error_of_use_ends_one_frame_below_the_readers_line(subtests, tmp_path):
    def save_nothing():
        with checkpoints.replacing(tmp_path / "model"):
            pass

    def enter(block):
        with block:
            raise AssertionError

    nothing = (TypeError, ValueError, OSError, RuntimeError, AttributeError)
    for last, use in [
        ("virtual_devices", lambda: distlab.virtual_devices("8", "jax")),
        ("virtual_devices", lambda: distlab.virtual_devices(8, "tensorflow2000")),
        ("draw", lambda: layouts.draw(5)),
        ("layout_of", lambda: layouts.layout_of([1])),
        ("table", lambda: layouts.table("model")),
        ("lint", lambda: layouts.lint("model")),
        ("check_layouts", lambda: layouts.check_layouts("model")),
        ("load", lambda: datasets.load("imagenet")),
        ("launch", lambda: distlab.launch(print, 0)),
        ("launch", lambda: distlab.launch(print, 1, args=5)),
        ("launch", lambda: distlab.launch("no_such.py", 1)),
        ("run", lambda: distlab.run(print, 1, "pytorch")),
        ("prewarm", lambda: distlab.prewarm("keras")),
        ("launch", lambda: distlab.launch(print, 1, cwd=5)),
        ("launch", lambda: distlab.launch(print, 1, checkpoint=5)),
        ("launch", lambda: distlab.launch(print, 1, engine="kubernetes")),
        ("run", lambda: distlab.run()),
        ("run", lambda: distlab.run(print, 1, None, (), {}, 5)),
        ("virtual_devices", lambda: distlab.virtual_devices(8)),
        ("load", lambda: datasets.load(nme="digits")),
        ("rank_info", lambda: distlab.rank_info({"RANK": "one", "WORLD_SIZE": "2"})),
        ("rank_info", lambda: distlab.rank_info(3)),
        ("rank_info", lambda: distlab.rank_info({"RANK": 1, "WORLD_SIZE": 2})),
        ("prepare", lambda: distlab.rank_info().prepare(["jax"])),
        ("sent_bytes", lambda: collectives.sent_bytes("all-reduce", "1", 2)),
        ("sent_bytes", lambda: collectives.sent_bytes(["all-reduce"], 1, 2)),
        ("count", lambda: collectives.count(len)),
        ("select", lambda: collectives.Communication(()).select(axes=3)),
        ("replacing", lambda: checkpoints.replacing()),
        ("__getattr__", lambda: distlab.launhc),
        ("__enter__", lambda: enter(checkpoints.replacing(5))),
        ("__enter__", lambda: enter(checkpoints.own_directory(None))),
    ]:
        with subtests.test(last):

            def call(use=use):
                return use()

            names = [name for name in frames(call, nothing) if name != "enter"]
            assert names == ["call", "<lambda>", last]

    def call():
        save_nothing()

    with subtests.test("at the end of a block"):
        assert frames(call, FileNotFoundError) == ["call", "save_nothing", "__exit__"]


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


MISUSED = [
    (
        "distlab.run(print, 1, args=5)",
        "TypeError: args must be a tuple or a list of the function's arguments, such as args=(5,), "
        "not 5 of type int.",
    ),
    (
        "distlab.virtual_devices(8)",
        "TypeError: virtual_devices() needs 'framework', which is missing. "
        'framework: "jax" or "tensorflow".',
    ),
    (
        "with distlab.checkpoints.replacing(3): pass",
        "TypeError: The path to save to must be a string or a Path, not 3 of type int.",
    ),
    (
        "distlab.launhc",
        "AttributeError: module 'distlab' has no attribute 'launhc'. Did you mean: 'launch'?",
    ),
]


def test_what_ipython_shows_ends_with_the_readers_line(tmp_path, subtests):
    *misused, deeper, failed = in_ipython(
        *(f"x = 1\n{use}" for use, _ in MISUSED),
        "def use():\n    distlab.datasets.load('MNIST')\nuse()",
        "def train():\n    1 / 0\ndistlab.run(train, 1, quiet=True)",
        directory=tmp_path,
    )
    for (use, message), lines in zip(MISUSED, misused, strict=True):
        with subtests.test(use):
            assert lines[-2:] == [f"----> 2 {use}", message]
    assert [line for line in deeper if "-> " in line] == [
        "----> 3 use()",
        "----> 2     distlab.datasets.load('MNIST')",
    ]
    assert "<distlab>" not in "".join(deeper)
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
        ({"args": {1: 2}}, f"{args} {{1: 2}} of type dict."),
        (
            {"args": np.zeros((3, 3))},
            f"{args} array([[0., 0., 0.], [0., 0., 0.], [0., 0., 0.]]) of",
        ),
        ({"kwargs": 5}, f"{kwargs} 5 of type int."),
        ({"kwargs": [("a", 1)]}, f"{kwargs} [('a', 1)] of type list."),
        ({"framework": "pytorch"}, "Unknown framework 'pytorch': did you mean 'torch'?"),
        ({"framework": "TensorFlow"}, "Unknown framework 'TensorFlow': did you mean 'tensorflow'?"),
        ({"framework": "tf"}, "Unknown framework 'tf': did you mean 'tensorflow'?"),
        ({"framework": "jaxlib"}, "Unknown framework 'jaxlib': did you mean 'jax'?"),
        ({"framework": "tensoflow"}, "Unknown framework 'tensoflow': did you mean 'tensorflow'?"),
        (
            {"framework": "keras"},
            "Unknown framework 'keras': expected 'jax' or 'tensorflow' or 'torch', "
            "whichever Keras runs on.",
        ),
        ({"framework": "tf", "roles": {"chief": 1}}, "Unknown framework 'tf': did you mean"),
        (
            {"framework": "pt", "devices_per_rank": 2},
            "Unknown framework 'pt': did you mean 'torch'",
        ),
        (
            {"framework": "torch", "devices_per_rank": 2},
            "devices_per_rank is for JAX and TensorFlow",
        ),
        ({"framework": "tensorflow", "roles": 3}, "roles must be a dict of numbers such as"),
        ({"framework": "tensorflow", "roles": {}}, "roles make no rank at all"),
        ({"env": ["A=1"]}, """env must be a dict such as {"NAME": "value"}, not ['A=1']."""),
        ({"env": {"A": 1}}, "env maps names to strings, but 'A' is set to 1: write {'A': '1'}."),
        (
            {"env": {"A": "x\0y"}},
            "env cannot hold 'A': no '=' or NUL in a name, no NUL in a value.",
        ),
        ({"env": []}, """env must be a dict such as {"NAME": "value"}, not []."""),
        ({"cwd": 5}, "cwd must be a path (a string or a Path), not 5 of type int."),
        ({"cwd": ""}, "cwd is an empty path: name one, or leave cwd out."),
        ({"checkpoint": 3}, "checkpoint must be a path (a string or a Path), not 3 of type int."),
        ({"checkpoint": ""}, "checkpoint is an empty path: name one, or leave checkpoint out."),
        ({"fresh": "no"}, "fresh must be True or False, not 'no' of type str."),
        (
            {"framework": sys},
            "framework must be 'jax' or 'tensorflow' or 'torch', not <module 'sys'",
        ),
        (
            {"framework": ModuleType("jax")},
            "framework must be 'jax' or 'tensorflow' or 'torch', not <module 'jax'> of type "
            "module: write 'jax', its name.",
        ),
        (
            {"framework": "tensorflow", "roles": {"cheif": 1}},
            "Unknown role 'cheif': expected chief, worker, ps, evaluator. Did you mean 'chief'?",
        ),
        (
            {"framework": "tensorflow", "roles": {"worker": "2"}},
            "roles['worker'] must be an int, not '2' of type str: write roles={'worker': 2}, say.",
        ),
        ({"engine": "Ray"}, "engine is 'Ray'; expected None, for this machine, or one of"),
        (
            {"kwargs": {"spe": " "}},
            "The arguments do not fit print(*args, sep=' ', end='\\n', file=None, flush=False): "
            "'spe' is not one of its arguments. Did you mean 'sep'?",
        ),
        ({"start": 0}, "start must be a list of ranks, such as start=[0], not 0."),
        ({"target": print()}, "The target must be a function or a script's path, not None of type"),
    ]:
        with subtests.test(**arguments), pytest.raises((TypeError, ValueError)) as caught:
            distlab.launch(**{"target": print, "nprocs": 2} | arguments)
        assert str(caught.value).startswith(message)
        assert len(str(caught.value).splitlines()) == 1


def test_messages_of_pictures_tables_and_checkpoints(subtests):
    mesh = layouts.Mesh((("data", 2),), ("cpu:0", "cpu:1"))
    axes = 'axes must be pairs of a name and a size, such as (("data", 2), ("model", 4)), not'
    for call, message in [
        (lambda: layouts.Mesh(3, 4), f"{axes} 3 of type int."),
        (lambda: layouts.Mesh(("data", 2), ("cpu:0",)), f"{axes} ('data', 2) of type tuple."),
        (lambda: layouts.Mesh((("data", 1),), 1), "devices must be a tuple of labels, not 1 of"),
        (
            lambda: mesh.size("dta"),
            "Axis 'dta' is not in the mesh, which has ['data']. Did you mean 'data'?",
        ),
        (lambda: layouts.draw(mesh, title=3), "title must be a string, or a list of strings, not"),
        (lambda: layouts.table({"a": 3}), "'a' must be a variable or an array, not 3 of type int."),
        (
            lambda: layouts.table({"a": np.ones(3)}, shown="x"),
            "shown must be a number of rows, 0 or more, not 'x' of type str.",
        ),
        (lambda: checkpoints.replacing("").__enter__(), "The path to save to is empty: name a"),
    ]:
        with subtests.test(message), pytest.raises((TypeError, ValueError)) as caught:
            call()
        assert str(caught.value).startswith(message)


def test_python_suggests_what_a_misspelt_name_of_the_package_means():
    with pytest.raises(AttributeError) as caught:
        distlab.launhc  # noqa: B018
    assert (caught.value.name, caught.value.obj) == ("launhc", distlab)
    done = subprocess.run(
        [sys.executable, "-c", "import distlab; distlab.launhc"], capture_output=True, text=True
    )
    suggestion = "module 'distlab' has no attribute 'launhc'. Did you mean: 'launch'?"
    assert done.stderr.splitlines()[-1] == f"AttributeError: {suggestion}"


def test_arguments_that_do_not_fit_are_named(subtests):
    job = distlab.launch(print, 1)
    job.results()
    for use, message in [
        (lambda: datasets.load(nme="x"), "load() has no argument 'nme'. Did you mean 'name'?"),
        (
            lambda: distlab.rank_info(variables={}),
            "rank_info() has no argument 'variables'. Its arguments are 'environment'.",
        ),
        (
            lambda: datasets.load("digits", "here"),
            "load() takes at most 1 positional argument, not 2. Give 'data_dir' by name.",
        ),
        (
            lambda: distlab.launch(print, 1, None, (), {}, 5),
            "launch() takes at most 5 positional arguments, not 6. Give the others by name.",
        ),
        (
            lambda: distlab.last_job(1),
            "last_job() takes no positional arguments, not 1. It has no arguments at all.",
        ),
        (
            lambda: job.log(0, 0, False, 1),
            "log() takes at most 3 positional arguments, not 4. "
            "Its arguments are 'rank', 'attempt' and 'chatter'.",
        ),
        (lambda: job.log(), "log() needs 'rank', which is missing. rank: Which rank."),
        (
            lambda: collectives.sent_bytes("all-reduce"),
            "sent_bytes() needs 'payload' and 'devices', which are missing.",
        ),
        (
            lambda: distlab.launch(print, 1, target=print),
            "launch() got multiple values for argument 'target'.",
        ),
    ]:
        with subtests.test(message), pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
            use()


def test_an_error_of_types_within_a_function_is_not_taken_for_a_wrong_call():
    def add(one, two):
        return one + two

    def call():
        public.public(add)(1, "2")

    assert frames(call, TypeError) == ["call", "add", "add"]


def test_an_error_shown_by_ipython_can_be_pickled(monkeypatch):
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=SimpleNamespace))
    with pytest.raises(ValueError) as caught:
        datasets.load("imagenet")
    assert hasattr(caught.value, "_render_traceback_")
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_other_errors_keep_their_frames(subtests):
    def slip():
        return {}["missing"]

    def refuse():
        raise ValueError("no")

    def interrupt():
        raise KeyboardInterrupt

    for function, kind in [(slip, KeyError), (refuse, ValueError), (interrupt, KeyboardInterrupt)]:
        with subtests.test(function.__name__):
            shown = public.public(function)

            def call(shown=shown):
                shown()

            # This file is not one of distlab's, so what it raises is no error of use.
            assert frames(call, kind) == ["call", function.__name__, function.__name__]


def test_an_error_of_a_block_is_the_readers(tmp_path):
    def call():
        with checkpoints.replacing(tmp_path / "model"):
            raise ZeroDivisionError

    assert frames(call, ZeroDivisionError) == ["call"]


def test_a_reader_between_two_calls_stays_in_the_traceback():
    def between():
        layouts.draw(5)

    def call():
        public.public(between)()

    assert frames(call, TypeError) == ["call", "between", "between", "draw"]


def test_the_cause_of_an_error_is_kept(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", "{")
    with pytest.raises(ValueError, match="expected JSON such as") as caught:
        checkpoints.is_chief()
    assert isinstance(caught.value.__cause__, ValueError)
    assert caught.value.__cause__.__traceback__ is None  # it leads through distlab and json alone


def test_what_was_probably_meant(subtests):
    for use, words in [
        (
            lambda: distlab.run(print, 2, timout=3),
            "run() has no argument 'timout'. Did you mean 'timeout'?",
        ),
        (
            lambda: distlab.launch(print, 2, nproc=3),
            "launch() has no argument 'nproc'. Did you mean 'nprocs'?",
        ),
        (lambda: distlab.run(print, 2, start=[0]), "run() has no argument 'start'."),
        (
            lambda: distlab.Slurm(partitoin="x"),
            "Slurm() has no argument 'partitoin'. Did you mean 'partition'?",
        ),
        (lambda: distlab.run("train.py", 2, args="--lr 1"), "such as args=['--lr', '1'], not"),
        (lambda: collectives.count(3), "write count(step, x, y), not count(step(x, y))"),
        (lambda: collectives.count_train_step(3, 4), "Expected a Keras model, not 3"),
    ]:
        with subtests.test(words), pytest.raises(TypeError, match=re.escape(words)):
            use()


def test_names_that_are_close_are_suggested(subtests):
    for use, meant in [
        (lambda: datasets.load("MNIST"), "mnist"),
        (lambda: collectives.sent_bytes("all-redcue", 8, 2), "all-reduce"),
        (lambda: collectives.sent_bytes("allgather", 8, 2), "all-gather"),
        (lambda: collectives.Communication(()).select("all_reduce"), "all-reduce"),
        (lambda: distlab.launch(print, 2, engine="Slurm"), "slurm"),
        (lambda: distlab.rank_info().prepare("pytorch"), "torch"),
    ]:
        with subtests.test(meant), pytest.raises(ValueError) as caught:
            use()
        assert str(caught.value).lower().endswith(f"did you mean {meant!r}?")


def test_a_script_that_is_not_there(tmp_path, subtests):
    (tmp_path / "train.py").touch()
    for name, message in [
        ("tran.py", f"Did you mean {str(tmp_path / 'train.py')!r}?"),
        (".", "is a directory: give the path of a script in it."),
        ("no/such.py", "no/such.py'."),
    ]:
        with subtests.test(name), pytest.raises(FileNotFoundError) as caught:
            distlab.launch(tmp_path / name, 1)
        assert str(caught.value).endswith(message)


def test_a_script_that_is_no_python_starts_no_rank(tmp_path, subtests):
    for source in (b"x = 1\nfor :\n", b"x = '\0'\n"):
        (tmp_path / "train.py").write_bytes(source)
        with subtests.test(source), pytest.raises(SyntaxError) as caught:
            distlab.run(tmp_path / "train.py", 2)
        assert str(tmp_path / "train.py") in (caught.value.filename or str(caught.value))


def test_the_last_job_is_that_of_the_last_run():
    distlab.run(print, 2, args=["first"], quiet=True)
    with pytest.raises(distlab.RankError):
        distlab.run(lambda: print("second") or 1 / 0, 1, quiet=True)
    assert distlab.last_job().log(0).startswith("second\n")
