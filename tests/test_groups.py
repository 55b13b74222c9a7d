"""Ranks find their group in each framework, as functions and as scripts written for others."""

import inspect
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest
from _processes import can, require

import distlab
from distlab.ports import HeldPort

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="watches processes through /proc")

TORCHRUN_SCRIPT = """
import argparse, os
import torch, torch.distributed as dist
parser = argparse.ArgumentParser()
parser.add_argument("--scale", type=float)
scale = parser.parse_args().scale
dist.init_process_group("gloo")
rank, local = dist.get_rank(), int(os.environ["LOCAL_RANK"])
total = torch.tensor([scale * (rank + 1)])
dist.all_reduce(total)
print("sum", total.item(), "of", dist.get_world_size(), "local", local == rank)
dist.destroy_process_group()
"""

TF_CONFIG_SCRIPT = """
import json, os
import tensorflow as tf
config = json.loads(os.environ["TF_CONFIG"])
strategy = tf.distribute.MultiWorkerMirroredStrategy()
def step():
    context = tf.distribute.get_replica_context()
    return context.all_reduce(tf.distribute.ReduceOp.SUM, tf.constant(1.0))
total = strategy.experimental_local_results(strategy.run(tf.function(step)))[0]
devices = len(tf.config.list_logical_devices("CPU"))
print("sum", float(total), "task", config["task"]["index"], "on", devices, "devices")
"""

JAX_SCRIPT = """
import os
import jax
jax.distributed.initialize(
    coordinator_address=os.environ["JAX_COORDINATOR_ADDRESS"],
    num_processes=int(os.environ["JAX_NUM_PROCESSES"]),
    process_id=int(os.environ["JAX_PROCESS_ID"]),
)
from jax.experimental import multihost_utils
everyone = multihost_utils.process_allgather(jax.numpy.array([jax.process_index()]))
print("everyone", everyone.ravel().tolist(), "on", jax.device_count(), "devices")
"""

# Which groups are still there once all have been destroyed, twice.
HELD = """
def held():
    import gc, weakref
    import torch, torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    seen = []
    for _ in range(2):
        dist.init_process_group("gloo")
        mesh = init_device_mesh("cpu", (1, 2), mesh_dim_names=("data", "model"))
        groups = [dist.group.WORLD, dist.new_group([0, 1]), *mesh.get_all_groups()]
        for group in (groups[0], groups[1], groups[-1]):
            ones = torch.ones(1)
            dist.all_reduce(ones, group=group)
            assert ones.item() == 2
        seen += map(weakref.ref, groups)
        del mesh, groups, group
        dist.destroy_process_group()
        gc.collect()
    return [group() is not None for group in seen]
"""

TORCHRUN_SCRIPT += HELD + "print(held())"

VARIABLES = (
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE",
    "ROLE_RANK", "ROLE_WORLD_SIZE", "ROLE_NAME", "MASTER_ADDR", "MASTER_PORT",
    "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS",
    "TORCHELASTIC_USE_AGENT_STORE",
)  # fmt: skip


@pytest.fixture(params=["fork", "spawn"])
def start_method(request):
    return request.param


def script(tmp_path, text: str):
    path = tmp_path / "train.py"
    path.write_text(text)
    return path


def last_lines(job) -> list[str]:
    job.results(timeout=120)
    return [job.log(rank).splitlines()[-1] for rank in range(job.nprocs)]


@pytest.mark.parametrize(
    ("text", "framework", "args", "expected"),
    [
        (TORCHRUN_SCRIPT, "torch", ("--scale", 2), ["sum 6.0 of 2 local True", str([True] * 8)]),
        (JAX_SCRIPT, "jax", (), ["everyone [0, 1] on 4 devices"]),
    ],
    ids=["torchrun", "jax.distributed"],
)
def test_a_script_written_for(tmp_path, start_method, text, framework, args, expected):
    require(framework)
    options = {"args": args, "start_method": start_method, "timeout": 120}
    if framework == "jax":
        options["devices_per_rank"] = 2
        if start_method == "spawn":  # in one obvious line
            text = re.sub(r"initialize\(.*?\n\)", "initialize()", text, flags=re.DOTALL)
    job = distlab.launch(script(tmp_path, text), 2, framework, **options)
    job.results()
    for rank in range(2):
        assert job.log(rank).splitlines()[-len(expected) :] == expected


def test_the_variables_of_torchrun(tmp_path):
    require("torch")
    path = script(
        tmp_path,
        "import json, os\n"
        f"line = json.dumps([os.environ.get(v) for v in {VARIABLES!r}]) + '\\n'\n"
        # One write: torchrun's ranks share its standard output.
        "os.write(1, line.encode())\n",
    )
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run([*torchrun, str(path)], capture_output=True, text=True, check=True)
    theirs = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    ours = [json.loads(line) for line in last_lines(distlab.launch(path, 2, "torch"))]
    its_own = {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID"}
    for mine, other in zip(ours, sorted(theirs), strict=True):
        for name, value, expected in zip(VARIABLES, mine, other, strict=True):
            assert value is not None, name
            if name not in its_own:
                assert value == expected, name


LEAVING_SCRIPT = """
import os
if child := os.fork():  # a child that ends as a rank does stays for nobody
    assert os.waitpid(child, 0)[1] == 0
    import atexit, pathlib, select, sys
    exec(pathlib.Path(sys.argv[1]).read_text())
    fifo = pathlib.Path(sys.argv[2])
    if config["task"]["index"] == 1:
        atexit.register(fifo.write_text, str(os.getpid()))
    else:  # reading waits until the other one, which is leaving, writes
        other = os.pidfd_open(int(fifo.read_text()))
        print("gone:", bool(select.select([other], [], [], 0.5)[0]))
"""


def test_a_script_for_tf_config_and_its_ranks_stay_until_no_other_needs_them(
    tmp_path, start_method
):
    """When a call of TensorFlow's returns, its threads may still be sending to another rank."""
    trains, fifo = tmp_path / "trains.py", tmp_path / "pid"
    trains.write_text(TF_CONFIG_SCRIPT)
    os.mkfifo(fifo)
    path = script(tmp_path, LEAVING_SCRIPT)
    options = {"args": (trains, fifo), "start_method": start_method, "timeout": 120}
    with distlab.launch(path, 2, "tensorflow", devices_per_rank=3, **options) as job:
        job.results()
        first, second = (job.log(rank).splitlines() for rank in range(2))
    assert first[-2:] == ["sum 2.0 task 0 on 6 devices", "gone: False"]
    assert second[-1] == "sum 2.0 task 1 on 6 devices"


def test_one_obvious_line_and_virtual_devices_within_a_rank():
    def with_jax():
        import jax

        jax.distributed.initialize()
        return jax.process_index(), jax.process_count(), jax.local_device_count()

    def with_keras():
        import jax
        import keras

        keras.distribution.initialize()
        return jax.local_device_count(), len(keras.distribution.list_devices())

    options = {"devices_per_rank": 2, "quiet": True}
    assert distlab.run(with_jax, 2, "jax", **options) == [(0, 2, 2), (1, 2, 2)]
    assert distlab.run(with_keras, 2, "jax", **options) == [(2, 4), (2, 4)]


def test_jax_without_a_group_says_so_once(start_method, subtests):
    def add(group):
        import jax

        if group:
            jax.distributed.initialize()
        total = float(jax.numpy.ones(3).sum())
        if group:
            jax.distributed.shutdown()
        return total

    for function, args, ranks, framework, told in [
        (add, [False], 2, "jax", True),
        (add, [True], 2, "jax", False),
        (add, [False], 1, "jax", False),
        (add, [False], 2, None, False),
        (os.getpid, [], 2, "jax", False),
    ]:
        with subtests.test(function=function.__name__, args=args, ranks=ranks, framework=framework):
            options = {"args": args, "start_method": start_method}
            with distlab.launch(function, ranks, framework, **options) as job:
                job.results()
                logs = [job.log(rank) for rank in range(ranks)]
            words = "distlab: rank 0 used JAX alone: the 2 processes did not form a group. "
            assert logs[0].startswith(words) == told
            assert logs[0].count("\n") == told and not any(logs[1:])


def test_tensorflow_roles(tmp_path):
    def place():
        config = os.environ["TF_CONFIG"]
        (tmp_path / f"partial{os.environ['RANK']}").write_text(config)
        (tmp_path / f"partial{os.environ['RANK']}").rename(tmp_path / os.environ["RANK"])
        # Those that serve are ended with the others.
        while not all((tmp_path / str(rank)).exists() for rank in range(5)):
            time.sleep(0.01)

    roles = {"chief": 1, "worker": 2, "ps": 1, "evaluator": 1}
    distlab.run(place, framework="tensorflow", roles=roles)
    configs = [json.loads((tmp_path / str(rank)).read_text()) for rank in range(5)]
    tasks = [(c["task"]["type"], c["task"]["index"]) for c in configs]
    assert tasks == [("chief", 0), ("worker", 0), ("worker", 1), ("ps", 0), ("evaluator", 0)]
    cluster = configs[0]["cluster"]
    assert all(config["cluster"] == cluster for config in configs)
    assert {role: len(addresses) for role, addresses in cluster.items()} == {
        "chief": 1,
        "worker": 2,
        "ps": 1,
    }
    addresses = [a for group in cluster.values() for a in group]
    assert len(set(addresses)) == 4
    assert all(a.startswith("127.0.0.1:") for a in addresses)


def test_parameter_servers_end_with_their_chief():
    def serve_or_lead():
        import tensorflow as tf

        resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        if resolver.task_type in ("ps", "worker"):
            server = tf.distribute.Server(
                resolver.cluster_spec(),
                job_name=resolver.task_type,
                task_index=resolver.task_id,
                protocol="grpc",
            )
            server.join()
        strategy = tf.distribute.ParameterServerStrategy(resolver)
        with strategy.scope():
            variable = tf.Variable(1.0)
        variable.assign_add(2.0)
        return float(variable.numpy()), variable.device

    roles = {"chief": 1, "worker": 1, "ps": 1}
    value, *served = distlab.run(
        serve_or_lead, framework="tensorflow", roles=roles, timeout=120, quiet=True
    )
    assert value[0] == 3.0
    assert "/job:ps" in value[1]
    assert served == [None, None]


def test_a_late_worker_is_waited_for():
    def join():
        import tensorflow as tf

        return tf.distribute.MultiWorkerMirroredStrategy().num_replicas_in_sync

    with distlab.launch(join, 2, "tensorflow", start=[0]) as job:
        job.wait_for_output(0, "Waiting for 1/2 tasks to connect")
        assert job.status[0].state == "running"
        job.start(1)
        assert job.results(timeout=60) == [2, 2]


def hang_on(rank, seconds=None):
    """One rank never comes to the all-reduce; the others wait, for some seconds if that is said."""
    import time
    from datetime import timedelta

    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo", timeout=timedelta(seconds=seconds or 60))
    while dist.get_rank() == rank:
        time.sleep(0.1)  # here
    dist.all_reduce(torch.ones(1))  # there


def line_of(words):
    lines, first = inspect.getsourcelines(hang_on)
    return first + next(n for n, line in enumerate(lines) if words in line)


def test_of_a_rank_that_leaves_a_collective_out_detail_does_not_blame_the_one_that_waits():
    require("torch")

    def skip():
        import torch
        import torch.distributed as dist

        dist.init_process_group("gloo")
        dist.barrier()
        if dist.get_rank() < 2:
            dist.all_reduce(torch.ones(2))

    with pytest.raises(distlab.RankError) as error:
        distlab.run(skip, 3, "torch", quiet=True, env={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"})
    said, hint = error.value.headline.splitlines()
    assert re.fullmatch(
        r"rank.* (waited for|lost .*, as) rank 2(, which)? had returned already", said
    )
    assert "the same collectives, as often" in hint


def test_a_hang_names_the_rank_that_the_others_wait_for():
    require("torch")
    here, there = (f"{__file__}, line {line_of(f'# {w}')} in hang_on" for w in ("here", "there"))
    with pytest.raises(distlab.JobTimeoutError) as late:
        distlab.run(hang_on, 4, "torch", args=[2], timeout=2)
    where = f"rank 2 at {here}; ranks 0, 1 and 3 at {there} (all_reduce)"
    assert late.value.headline.endswith(
        f" Where they were: {where}.\nDo all ranks call the same collectives, "
        "in the same order, and each recv its send?"
    )
    assert str(late.value).index("rank 2: was still") < str(late.value).index("ranks 0, 1 and 3, ")

    job = distlab.launch(hang_on, 4, "torch", args=[2])
    timer = threading.Timer(1.5, signal.raise_signal, [signal.SIGINT])
    timer.start()
    with pytest.raises(KeyboardInterrupt, match=re.escape(f"4 ranks were stopped: {where}")):
        job.results()


def test_a_rank_that_has_left_the_target_is_named_too(tmp_path):
    require("torch")
    script = tmp_path / "leave.py"
    script.write_text(
        "import os, torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "if os.environ['RANK'] != '1':\n"
        "    dist.all_reduce(torch.ones(1))\n"
    )
    program = f"import runpy, torch.distributed as d; runpy.run_path({str(script)!r}); d.barrier()"
    with pytest.raises(distlab.JobTimeoutError) as late:
        distlab.run(exec, 3, "torch", args=[program], timeout=3)
    where = f"rank 1 in no line of yours (barrier); ranks 0 and 2 at {script}, line 4 in <module>"
    assert f" Where they were: {where} (all_reduce)." in late.value.headline


def test_a_rank_whose_peers_time_out_says_where_it_was():
    require("torch")
    with pytest.raises(distlab.RankError, match="Timed out") as error:
        distlab.run(hang_on, 3, "torch", args=[0, 2])
    assert "These were still running, and were stopped then: rank 0" in str(error.value)
    assert f"line {line_of('# here')} in hang_on" in error.value.others[0].traceback


@pytest.mark.parametrize(
    ("code", "framework", "hint"),
    [
        ("import torch.distributed as d; d.init_process_group('gloo')", None, 'framework="torch"'),
        ("import jax; jax.distributed.initialize()", None, 'framework="jax"'),
        ("import torch; torch.ones(1).cuda()", "torch", "no GPU that PyTorch can use"),
        ("import torch.distributed as d; d.get_rank()", "torch", "init_process_group"),
        ("breakpoint()", None, "has no keyboard"),
        ("input()", None, "has no keyboard"),
    ],
)
def test_a_hint_says_what_the_framework_leaves_out(code, framework, hint):
    with pytest.raises(distlab.RankError) as error:
        distlab.run(exec, 1, framework, args=[code], quiet=True)
    assert hint in str(error.value).splitlines()[1]


def test_ranks_whose_shapes_differ_are_told_how_to_see_it():
    require("torch")

    def differ():
        import torch
        import torch.distributed as dist

        dist.init_process_group("gloo")
        dist.all_reduce(torch.ones(2 + dist.get_rank()))

    with pytest.raises(distlab.RankError) as error:
        distlab.run(differ, 3, "torch", quiet=True)
    *_, how = error.value.headline.splitlines()
    (pair,) = re.findall(r"With env=(\{.*\}) PyTorch says what differs", how)
    with pytest.raises(distlab.RankError) as error:
        distlab.run(differ, 3, "torch", quiet=True, env=json.loads(pair))
    assert "is running collective: ALLREDUCE, but Rank" in error.value.headline
    assert re.search(r"Tensor shapes: [234]vs [234]", error.value.headline)
    assert str(error.value).count("in differ") == 1, "told once, though each rank names another"


def test_a_restarted_job_forms_a_new_group(tmp_path):
    require("torch")

    def train():
        import torch
        import torch.distributed as dist

        dist.init_process_group("gloo")
        total = torch.ones(1)
        dist.all_reduce(total)
        if dist.get_rank() == 1 and not (tmp_path / "failed").exists():
            (tmp_path / "failed").touch()
            os._exit(1)
        dist.barrier()
        return total.item(), os.environ["TORCHELASTIC_RESTART_COUNT"]

    job = distlab.launch(train, 2, "torch")
    with pytest.raises(distlab.RankError, match="rank 1 of 2 exited with status 1"):
        job.results()
    with pytest.raises(RuntimeError, match="cannot be joined by one rank alone"):
        job.restart(1)
    job.restart()
    assert job.results(timeout=60) == [(2.0, "1"), (2.0, "1")]


def test_a_port_handed_over_is_free_even_while_a_sibling_holds_a_copy():
    """A rank forked just before has its copies of the held ports until it gets round to closing."""
    port = HeldPort()
    reader, writer = os.pipe()
    sibling = os.fork()
    if sibling == 0:
        os.close(writer)
        os.read(reader, 1)  # until the test is over
        os._exit(0)
    try:
        port.hand_over()
        with socket.socket() as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind(("0.0.0.0", port.number))
            server.listen()
    finally:
        os.close(writer)
        os.close(reader)
        os.waitpid(sibling, 0)


# In a network namespace of its own; without root in a user namespace as well.
ALONE = ("unshare", "--net", *(() if os.geteuid() == 0 else ("--user", "--map-root-user")))

# The system gives out four ports here, and the first three are in use at one address.
FEW_PORTS = """
import socket
from pathlib import Path
from distlab.ports import HeldPort

Path("/proc/sys/net/ipv4/ip_local_port_range").write_text("40000 40003")
used = [socket.socket() for _ in range(3)]
for number, one in enumerate(used):
    one.bind(("127.0.0.1", 40000 + number))
    one.listen()
for _ in range(20):
    port = HeldPort(host="127.0.0.2")
    print(port.address)
    port.close()
"""


@pytest.mark.skipif(
    not can(*ALONE) or shutil.which("ip") is None, reason="needs namespaces and the program ip"
)
def test_a_held_port_is_free_at_all_addresses():
    alone = [*ALONE, "sh", "-c", 'ip link set lo up && exec "$@"', "-"]
    command = [*alone, sys.executable, "-c", FEW_PORTS]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (found.stdout.split(), found.stderr) == (["127.0.0.2:40003"] * 20, "")


@pytest.mark.parametrize("framework", ["torch", None])
def test_a_group_lives_as_long_as_its_rank(framework):
    """If DDP's reducer is the last to let go of a group, that may wait for ever: docs/faults.md."""
    require("torch")
    port = HeldPort()
    port.close()
    by_hand = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port.number)}
    names = {}
    exec(HELD, names)
    options = {"timeout": 120, "env": {} if framework else by_hand, "quiet": True}
    assert distlab.run(names["held"], 2, framework, **options) == [[True] * 8] * 2


def test_a_rank_that_returns_at_once_closes_no_connection_that_others_still_make():
    def only_join():
        import torch.distributed as dist

        dist.init_process_group("gloo")
        return os.environ["TORCH_DIST_INIT_BARRIER"]

    for _ in range(8):
        assert distlab.run(only_join, 4, "torch", quiet=True) == ["1"] * 4


def test_what_can_only_be_read_in_the_group_says_so():
    def wrapped():
        import torch
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel

        dist.init_process_group("gloo")
        return DistributedDataParallel(torch.nn.Linear(1, 1))

    with pytest.raises(TypeError, match=r"cannot be read in this process \(.*its state_dict"):
        distlab.run(wrapped, 2, "torch", quiet=True)


def test_two_jobs_at_once_do_not_meet():
    def gather():
        import jax

        jax.distributed.initialize()
        from jax.experimental import multihost_utils

        mark = jax.numpy.array([int(os.environ["MARK"])])
        return multihost_utils.process_allgather(mark).ravel().tolist()

    jobs = [distlab.launch(gather, 2, "jax", env={"MARK": str(mark)}) for mark in range(3)]
    assert [job.results(timeout=60) for job in jobs] == [[[m, m], [m, m]] for m in range(3)]


@pytest.mark.parametrize(
    ("framework", "text"), [("tensorflow", TF_CONFIG_SCRIPT), ("jax", JAX_SCRIPT)]
)
def test_a_proxy_is_not_asked_for_this_machine(tmp_path, framework, text):
    nowhere = {"http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9"}
    job = distlab.launch(script(tmp_path, text), 2, framework, env=nowhere, timeout=60)
    assert job.results() == [None, None]


def test_a_host_name_that_leads_nowhere_is_no_obstacle_for_jax(tmp_path):
    if subprocess.run(["unshare", "--uts", "true"], check=False).returncode:
        pytest.skip("needs the right to change the host name in a name space of its own")
    code = (
        "import socket, distlab; socket.sethostname('nowhere.invalid');"
        f"job = distlab.launch({str(script(tmp_path, JAX_SCRIPT))!r}, 2, 'jax', timeout=60);"
        "print(job.results())"
    )
    command = ["unshare", "--uts", sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "[None, None]\n", done.stderr


@pytest.mark.parametrize("framework", ["torch", "tensorflow", "jax"])
def test_a_supervisor_is_single_threaded_and_starts_no_device(framework):
    require(framework)
    with distlab.launch(lambda: time.sleep(600), 1, framework) as job:
        job.pause(0)
        supervisor = psutil.Process(job.status[0].pid).parent()
        names = [
            Path(f"/proc/{supervisor.pid}/task/{thread.id}/comm").read_text().strip()
            for thread in supervisor.threads()
        ]
        # jemalloc, which some builds of Arrow bring along, sees to forks itself.
        assert [name for name in names if name != "jemalloc_bg_thd"] == [names[0]]
        job.resume(0)


def test_launch_from_a_process_that_has_started_every_framework():
    """JAX' ranks, as JAX warns of forks; the lessons do the same with TensorFlow and PyTorch."""
    require("torch")
    code = """
import os
import jax.numpy as jnp
import tensorflow as tf
import torch
jnp.ones(8).sum().block_until_ready()
tf.reduce_sum(tf.ones(8)).numpy()
torch.ones(1000, 1000) @ torch.ones(1000, 1000)
import distlab
print(distlab.run(lambda: int(os.environ["RANK"]), 2, "jax"))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1:] == ["[0, 1]"], done.stderr
    assert "fork" not in done.stderr
