"""What lessons share: ranks in a group, the words of a check, bytes that are counted, a text."""

import contextlib
import io
import os
import time

import pytest

from distlab import RankError, run
from distlab.launching.rank_errors import RankFailure
from distlab.lessons.groups import on_ranks
from distlab.lessons.measured import bytes_received, bytes_saved
from distlab.lessons.texts import zen
from distlab.lessons.verdict import verdict


def said(check):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        verdict(check)
    return out.getvalue()


def received():
    import torch
    import torch.distributed as dist

    before = bytes_received()
    dist.broadcast(torch.zeros(25_000), src=0)
    dist.barrier()
    return dist.get_rank(), bytes_received() - before


def test_ranks_form_a_group_and_count_what_arrives():
    (zero, little), (one, much) = on_ranks(received, nprocs=2)
    assert (zero, one) == (0, 1)
    assert little < 10_000 < 100_000 < much < 110_000


def test_arguments_are_passed_on_and_a_time_limit_holds():
    def work():
        import torch
        import torch.distributed as dist

        if dist.get_rank() == 0:
            dist.recv(torch.empty(1), src=1)

    assert on_ranks(lambda a, b: a + b, 1, b=2, nprocs=2) == [3, 3]
    with pytest.raises(RankError, match="rank 0"):
        on_ranks(work, nprocs=2, limit=1, meet=False)


def test_a_check_says_right_or_what_is_missing():
    assert said(lambda: "") == said(lambda: None) == "Right.\n"
    assert said(lambda: "more.") == "Not yet: more.\n"


def test_what_the_readers_code_raises_is_said_in_one_line():
    def failing():
        raise KeyError("weight")

    def waiting():
        import torch
        import torch.distributed as dist

        dist.recv(torch.empty(1), src=(dist.get_rank() + 1) % 2)

    assert said(failing) == "Not yet: it raises KeyError: 'weight'\n"
    on_a_rank = said(lambda: on_ranks(failing, nprocs=1))
    assert on_a_rank == "Not yet: rank 0 raises KeyError: 'weight'\n"
    ended = said(lambda: run(os._exit, 1, args=(3,)))
    assert ended.startswith("Not yet: rank 0 exited with status 3\nNo exception of your code")
    unknown = said(lambda: run(lambda: torch.ones(1), 1)).splitlines()  # noqa: F821
    assert unknown[0] == "Not yet: rank 0 raises NameError: name 'torch' is not defined"
    assert unknown[1].startswith("Import it")
    hints = 'Has each recv its send?\nWith env={"A": "B"} PyTorch says what differs.'
    aborted = RankFailure(0, "rank 0", "was ended by SIGABRT", "", "")

    def lost():
        raise RankError(f"rank 0 of 2 was ended by SIGABRT\n{hints}", [aborted], [])

    told = "Not yet: rank 0 was ended by SIGABRT\nHas each recv its send?\n"
    assert said(lost) == told, "a check has no launch to give env= to"
    told = said(lambda: on_ranks(waiting, nprocs=2, limit=1))
    assert told.startswith("Not yet: the ranks wait for each other")
    stopped = said(lambda: run(time.sleep, 2, args=(600,), timeout=1))
    assert stopped == told  # in no line of the reader's
    where = said(lambda: run(lambda: time.sleep(600), 2, timeout=1)).splitlines()[1]
    assert where.startswith("Where they were: ranks 0 and 1 at ")


def test_what_autograd_keeps_is_counted_once_and_without_the_weights():
    import torch  # here: every worker imports what a module imports

    x = torch.ones(1000, requires_grad=True)
    result, kept = bytes_saved(lambda: (x * x).sum())
    assert (result.item(), kept) == (1000, 4000)
    assert bytes_saved(lambda: (x * x).sum(), without=[x])[1] == 0
    assert bytes_saved(lambda: x.exp().exp())[1] == 8000


def test_the_text_is_there():
    assert (len(zen()), len(zen().splitlines())) == (856, 21)
