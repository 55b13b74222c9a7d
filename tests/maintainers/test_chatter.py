"""What counts as chatter: lines of every healthy start, or that an error repeats, and no other."""

from distlab import frameworks

PEERS = "is connected to 3 peer ranks. Expected number of connected peer ranks is : 3"
CHATTER = [
    f"[Gloo] Rank 2 {PEERS}",
    # Two threads of one process that say it at once.
    f"[Gloo] Rank [Gloo] Rank 3 {PEERS}",
    f"2 {PEERS}",
    "[Gloo] Rank ",
    "[W1121 21:09:20 socket.cpp:207] [c10d] The hostname of the client socket cannot be retrieved."
    " err=-3",
    "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR",
    "I0000 00:00:1795231695.146888   19652 port.cc:153] oneDNN custom operations are on.",
    "/a/torch/distributed/distributed_c10d.py:1849: UserWarning: Attempted to get default timeout "
    "for nccl backend, but NCCL support is not compiled",
    "  timeout = _get_default_timeout(backend)",
]
NEWS = [
    "[Gloo] Rank 2 has lost its connection to rank 1",
    "E0000 00:00:1795231695.146888   19652 rendezvous.cc:161] Termination timeout",
    "my model is connected to 3 peer ranks",
    "loss 0.5",
    "",
]


def test_what_every_start_says_is_chatter_and_all_else_is_passed_on(subtests):
    for line in [*CHATTER, *NEWS]:
        with subtests.test(line=line):
            assert frameworks.is_chatter(line) == (line in CHATTER)
