"""`python -m distlab doctor`, with real groups, real leftovers and real settings."""

import os
import re
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest
from _processes import Kernel, family, wait_gone
from click.testing import CliRunner

import distlab
from distlab.__main__ import commands
from distlab.frameworks import FRAMEWORKS
from distlab.launching import doctor, processes

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="watches processes through /proc")
INSTALLED = [name for name in FRAMEWORKS if find_spec(name) is not None]


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "distlab", "doctor", *words],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def section(report: str, title: str) -> str:
    """What a report says below a title."""
    return re.search(rf"^{title}\n(.*?)\n\n", report, re.DOTALL | re.MULTILINE)[1]


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """A directory for temporary files that this test has for itself."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def orphan():
    """A process that says it belongs to a job of a supervisor that is gone."""
    process = subprocess.Popen(["sleep", "600"], env=os.environ | {"DISTLAB_JOB": "distlab-gone-1"})
    yield process
    process.kill()
    process.wait()


def make(directory: Path) -> None:
    """A directory for the files of jobs, of this machine, that nobody holds."""
    directory.mkdir()
    (directory / processes.MACHINE).write_text(processes.machine())


# The command.


@pytest.fixture
def only_leftovers(monkeypatch):
    """The doctor looks at nothing else."""
    title = "Left over from earlier runs"
    monkeypatch.setattr(doctor, "examine", lambda clean: [(title, doctor._left_over(clean))])


def test_a_sick_machine(temporary, orphan, only_leftovers):
    make(temporary / "distlab-ruin")
    done = CliRunner().invoke(commands, ["doctor"])
    assert done.exit_code == 1
    left = section(done.output, "Left over from earlier runs")
    assert f"problem  process {orphan.pid}: sleep 600" in left
    assert f"directory {temporary / 'distlab-ruin'}" in left
    assert "python -m distlab doctor --clean" in left


def test_a_machine_that_is_cured(temporary, orphan):
    ruin = temporary / "distlab-ruin"
    make(ruin)
    began = time.monotonic()
    done = run("--clean")
    assert time.monotonic() - began < 60
    assert orphan.wait(5) == -signal.SIGKILL
    assert not ruin.exists()
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert done.stdout.endswith("\nAll is well.\n")
    assert "\n  problem " not in done.stdout
    groups = section(done.stdout, "Groups of two ranks").splitlines()
    assert [line.split(":")[0].split() for line in groups] == [["ok", name] for name in INSTALLED]
    assert all("formed and summed" in line for line in groups)
    versions = section(done.stdout, "Versions")
    for package, version in doctor.installed().items():
        assert (f" {package} {version}" if version else f" {package}: not installed") in versions
    # Titles and indented lines, and nothing that a framework said.
    assert all(re.match(r"[A-Z]|  |$", line) for line in done.stdout.splitlines())
    assert not list(temporary.glob("distlab-*")), "the doctor left something behind"


def test_a_directory_that_lies_about_is_only_noted(temporary, only_leftovers):
    for number in range(12):
        make(temporary / f"distlab-{number:02}")
    done = CliRunner().invoke(commands, ["doctor"])
    lines = done.output.splitlines()
    assert done.exit_code == 0
    assert lines[1] == f"  note     directory {temporary / 'distlab-00'}"
    assert [line.strip() for line in lines[-3:]] == [
        "-> python -m distlab doctor --clean removes what no run uses any more",
        "",
        "All is well.",
    ]
    done = CliRunner().invoke(commands, ["doctor", "--clean"])
    assert done.exit_code == 0
    assert "processes ended: 0, directories removed: 12" in done.output
    assert list(temporary.iterdir()) == []


def test_a_group_that_cannot_form_is_a_problem(monkeypatch):
    def disagree():
        return 2.0

    def fail():
        raise OSError("no such network")

    monkeypatch.setitem(doctor._SUMS, "torch", disagree)
    monkeypatch.setitem(doctor._SUMS, "jax", fail)
    framework = next((name for name in ("torch", "jax") if name in INSTALLED), None)
    if framework is None:
        pytest.skip("neither torch nor jax is installed")
    ((level, words),) = doctor._groups([framework])
    assert level == "problem"
    expected = "the ranks summed 1 + 2 to [2.0, 2.0]" if framework == "torch" else "no such network"
    assert expected in words


def test_no_framework_at_all_is_no_failure():
    assert list(doctor._groups([])) == [("", "no framework is installed")]
    nothing = dict.fromkeys(doctor.PACKAGES)
    assert {level for level, _ in doctor._versions(nothing)} == {""}


# What is left over.


def test_what_is_in_use_is_not_left_over(temporary):
    def with_child():
        child = subprocess.Popen(["sleep", "600"])
        print("child", child.pid, flush=True)
        child.wait()

    with distlab.launch(with_child, 2, env={"LD_TEST": "its own supervisor"}) as job:
        children = [int(job.wait_for_output(rank, "child").split()[1]) for rank in range(2)]
        used = {job._client.pid, *children, *(status.pid for status in job.status)}
        running, lying = doctor.leftovers()
        assert not used & {process.pid for process in running}
        assert job._client.directory not in lying
        job._client.close()


def test_a_supervisor_that_could_not_see_its_kernel_end(temporary):
    code = """
        def nap():
            print("asleep", flush=True)
            time.sleep(600)
        job = distlab.launch(nap, 2)
        for rank in range(2):  # before that a rank needs the directory, which goes with the kernel
            job.wait_for_output(rank, "asleep")
        say([supervisors(), pids(job), str(job._client.directory)])
        hear()
    """
    with Kernel(code) as kernel:
        (supervisor,), ranks, directory = kernel.heard()
        os.kill(supervisor, signal.SIGSTOP)
        below = family(kernel.process.pid)
        kernel.process.kill()
        kernel.process.wait()
        # Its parent is another process now.
        while psutil.Process(supervisor).ppid() == kernel.process.pid:
            time.sleep(0.01)
        running, _ = doctor.leftovers()
        assert {supervisor, *ranks} <= {process.pid for process in running}
        for process in running:
            if process.pid in {supervisor, *ranks}:
                process.kill()
        assert wait_gone([supervisor, *ranks, *below], 5) == []
        assert not Path(directory).exists()  # what was below the kernel has removed it


def test_directories_of_others_are_left_alone(temporary):
    for name in ("distlab-mine", "distlab-there", "other"):
        make(temporary / name)
    (temporary / "distlab-notes").mkdir()
    (temporary / "distlab-there" / processes.MACHINE).write_text("another machine")
    assert doctor.leftovers()[1] == [temporary / "distlab-mine"]


def test_a_directory_whose_kernel_was_killed_with_all_below_it(temporary):
    code = """
    from distlab.launching import processes
    directory, keeper = processes.new_directory()
    say(str(directory))
    hear()
    """
    with Kernel(code) as kernel:
        directory = Path(kernel.heard())
        assert directory.parent == temporary
        assert directory not in doctor.leftovers()[1]
        for pid in [*family(kernel.process.pid), kernel.process.pid]:  # and who would remove it
            os.kill(pid, signal.SIGKILL)
        kernel.process.wait()
        assert directory in doctor.leftovers()[1]
