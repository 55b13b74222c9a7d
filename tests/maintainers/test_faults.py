"""What the system refuses: a full disk, and limits; docs/faults.md has the list."""

import sys

import pytest
from _hardship import RUN, WELL, counted_alone, ended, small_disk
from _processes import Kernel, require

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs namespaces and prlimit")

# A full disk.

FILL = """
place = os.environ["TMPDIR"] + "/fill"
def fill():
    with open(place, "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass
"""


def test_a_disk_that_fills_while_ranks_print(tmp_path):
    code = """
    def chatty():
        for _ in range(100_000):
            print("x" * 100)
    job = distlab.launch(chatty, 1)
    attempt(job.results)
    say(job.log(0)[:101])
    import gc
    del job
    gc.collect()
    """
    with Kernel(code, RUN, "hear()", by=small_disk(tmp_path, "2m"), TMPDIR=str(tmp_path)) as it:
        kind, message = it.heard()
        assert kind == "RankError"
        first = "rank 0 of 1 failed: OSError: [Errno 28] No space left on device"
        assert message.splitlines()[0] == first
        assert "in chatty" in message
        assert it.heard() == "x" * 100 + "\n"
        assert it.heard() == WELL
        ended(it)


def test_a_disk_too_small_for_a_result(tmp_path):
    code = "attempt(lambda: distlab.run(lambda: bytes(3_000_000), 1, quiet=True))\n"
    with Kernel(code, RUN, "hear()", by=small_disk(tmp_path, "2m"), TMPDIR=str(tmp_path)) as it:
        kind, message = it.heard()
        assert (kind, "The rank's result could not be written" in message) == ("RankError", True)
        assert it.heard() == WELL
        ended(it)


def test_a_disk_too_small_for_a_checkpoint(tmp_path):
    code = """
    place = os.environ["TMPDIR"] + "/state"
    def save(size):
        with distlab.checkpoints.replacing(place) as partial:
            partial.write_bytes(bytes(size))
    distlab.run(save, 1, args=[1000], quiet=True)
    attempt(lambda: distlab.run(save, 1, args=[3_000_000], quiet=True))
    say([n for n in os.listdir(os.environ["TMPDIR"]) if not n.startswith("distlab-")])
    say(os.path.getsize(place))
    """
    with Kernel(code, RUN, "hear()", by=small_disk(tmp_path, "2m"), TMPDIR=str(tmp_path)) as it:
        kind, message = it.heard()
        assert (kind, "No space left on device" in message) == ("RankError", True)
        assert it.heard() == ["state"]
        assert it.heard() == 1000
        assert it.heard() == WELL
        ended(it)


def test_a_disk_that_is_full_already(tmp_path):
    code = """
    job = distlab.launch(lambda: 5, 2)  # whose files no launch removes: it is held
    attempt(job.results)
    fill()
    attempt(lambda: distlab.run(lambda: 5, 2, quiet=True))
    attempt(lambda: distlab.run(lambda: 5, 2, quiet=True, start_method="spawn"))
    os.unlink(place)
    say(os.listdir(os.environ["TMPDIR"]))
    attempt(lambda: distlab.run(lambda: 5, 2, quiet=True, start_method="spawn"))
    """
    with Kernel(
        FILL, code, RUN, "hear()", by=small_disk(tmp_path, "2m"), TMPDIR=str(tmp_path)
    ) as it:
        assert it.heard() == WELL
        for _ in range(2):
            kind, message = it.heard()
            assert kind == "OSError"
            assert f"No space left on device: '{tmp_path}/distlab-" in message
        (left,) = it.heard()  # that of the supervisor for the first run
        assert left.startswith("distlab-")
        assert it.heard() == WELL
        assert it.heard() == WELL
        ended(it)


def test_an_error_while_the_disk_is_full(tmp_path):
    code = r"""
    def bad():
        fill()
        raise ValueError("the reason" + "é\x01" * 3000)
    attempt(lambda: distlab.run(bad, 2, quiet=True))
    os.unlink(place)
    """
    with Kernel(
        FILL, code, RUN, "hear()", by=small_disk(tmp_path, "2m"), TMPDIR=str(tmp_path)
    ) as it:
        kind, message = it.heard()
        assert kind == "RankError"
        assert " failed: ValueError: the reason" in message.splitlines()[0]
        assert it.heard() == WELL
        ended(it)


# Limits of the system.

LIMITED = """
import resource
kept = distlab.launch(lambda: (print("here"), time.sleep(600)), 1)
kept.wait_for_output(0, "here")
def limit(kind, most):
    for pid in supervisors():
        resource.prlimit(pid, kind, (most, resource.prlimit(pid, kind)[1]))
"""
KEPT = """
say(kept.status[0].state)
limit(resource.RLIMIT_{kind}, resource.getrlimit(resource.RLIMIT_{kind})[0])
"""


def test_a_limit_on_processes(tmp_path):
    code = """
    limit(resource.RLIMIT_NPROC, 20)
    job = distlab.launch(time.sleep, 32, args=[600])
    attempt(job.results)
    say(sorted({status.state for status in job.status}))
    job.restart()
    attempt(job.results)
    """
    tmp_path.chmod(0o777)
    with Kernel(
        LIMITED,
        code,
        KEPT.format(kind="NPROC"),
        RUN,
        "hear()",
        by=counted_alone(),
        TMPDIR=str(tmp_path),
    ) as it:
        refused = "failed: could not be started: BlockingIOError"
        kind, message = it.heard()
        assert (kind, refused in message) == ("RankError", True), message
        assert it.heard() == ["failed", "stopped"]
        kind, message = it.heard()
        assert (kind, refused in message) == ("RankError", True), message
        assert it.heard() == "running"
        assert it.heard() == WELL
        ended(it, tmp_path)


def test_too_few_processes_for_a_launch(tmp_path):
    code = """
    import gc, psutil, resource
    _, most = resource.getrlimit(resource.RLIMIT_NPROC)
    for room in range(3):  # the supervisor needs one more than the thread, and that than the first
        gc.collect()  # what has failed before has ended its processes then
        found = [each.info for each in psutil.process_iter(["uids", "num_threads"])]
        tasks = sum(each["num_threads"] for each in found if each["uids"].real == os.getuid())
        resource.setrlimit(resource.RLIMIT_NPROC, (tasks + room if room else 1, most))
        attempt(lambda: distlab.run(lambda: 5, 2, quiet=True))
    resource.setrlimit(resource.RLIMIT_NPROC, (most, most))
    """
    tmp_path.chmod(0o777)
    with Kernel(code, RUN, "hear()", by=counted_alone(), TMPDIR=str(tmp_path)) as it:
        none, thread, supervisor = (it.heard() for _ in range(3))
        assert none[0] == "BlockingIOError"
        assert "start new thread" in thread[1]
        assert supervisor[0] == "RankError"
        assert "could not be started: BlockingIOError: [Errno 11]" in supervisor[1]
        assert it.heard() == WELL
        ended(it, tmp_path)


def test_a_limit_on_open_files(tmp_path):
    code = """
    limit(resource.RLIMIT_NOFILE, 12)
    attempt(lambda: distlab.run(time.sleep, 32, "tensorflow", args=[600], quiet=True))
    def many():
        return [open("/dev/null") for _ in range(100_000)]
    attempt(lambda: distlab.run(many, 1, "tensorflow", quiet=True))
    """
    kept = LIMITED.replace("600)), 1)", '600)), 1, "tensorflow")')
    with Kernel(kept, code, KEPT.format(kind="NOFILE"), RUN, "hear()", TMPDIR=str(tmp_path)) as it:
        kind, message = it.heard()
        assert kind == "RankError"
        assert "could not be started: OSError: [Errno 24] Too many open files" in message
        kind, message = it.heard()
        assert (kind, "in many" in message, "Errno 24" in message) == ("RankError", True, True)
        assert it.heard() == "running"
        assert it.heard() == WELL
        ended(it, tmp_path)


def test_a_limit_on_memory(tmp_path):
    code = """
    def python():
        import resource
        resource.setrlimit(resource.RLIMIT_AS, (1 << 29, 1 << 29))
        print("limited")
        return bytes(1 << 30)
    attempt(lambda: distlab.run(python, 2, quiet=True))
    def native():
        import resource, torch
        resource.setrlimit(resource.RLIMIT_AS, (1 << 29, 1 << 29))
        return torch.zeros(1 << 30)
    attempt(lambda: distlab.run(native, 2, "torch", quiet=True))
    """
    require("torch")
    with Kernel(code, RUN, "hear()", TMPDIR=str(tmp_path)) as it:
        kind, message = it.heard()
        assert (kind, "failed: MemoryError" in message) == ("RankError", True)
        assert "limited" in message
        kind, message = it.heard()
        assert (kind, "can't allocate memory" in message) == ("RankError", True)
        assert it.heard() == WELL
        ended(it, tmp_path)
