"""What kernel, supervisors and ranks say to one another: all of it travels, nothing else does."""

import shutil
from pathlib import Path

import pytest
from _processes import Kernel

import distlab
from distlab.launching.protocol import messages
from distlab.launching.protocol.tasks import Part, Task

REQUESTS = [
    messages.Launch(
        job="j",
        tasks=[Task("chief", 0), Task("worker", 0)],
        ranks=[1],
        part=Part([1], "127.0.0.2", 1, 2, {0: "127.0.0.1:5"}, {1: 7}),
        environment={"NAME": "\x1b[1m ü"},
        timeout=0.5,
    ),
    messages.Restart(job="j", ranks=[0], together=True),
    messages.Signal(job="j", ranks=[0], name="SIGSTOP"),
    messages.Stop(job="j"),
    messages.Hold(job="", nprocs=4),
    messages.WriteStacks(job="j"),
    messages.Forget(job="j"),
]
EVENTS = [
    messages.Ready(),
    messages.Broken(error="no"),
    messages.RankChanged(
        job="j", rank=1, attempt=0, group=0, state="done", status=-9, node="n", why="w"
    ),
    messages.Failing(job="j", rank=1, attempt=0, why="w"),
    messages.Returned(job="j", rank=1, attempt=0),
    messages.Over(job="j", attempt=0, how="done"),
    messages.StacksWritten(job="j"),
]

WORDS = [
    messages.Failing(job="j", rank=0, attempt=0, why="line 1\nline 2"),
    messages.Returned(job="j", rank=0, attempt=0),
    messages.Ended(job="j", rank=0, attempt=0, status=1),
]


def test_every_message_is_one_line_and_arrives_as_it_was(subtests):
    for sent, read in [
        *((request, messages.requests.decode) for request in REQUESTS),
        *((event, messages.read_event) for event in EVENTS),
        *((word, messages.words.decode) for word in WORDS),
    ]:
        with subtests.test(type(sent).__name__):
            line = messages.encode(sent)
            assert line.count(b"\n") == 1 and line.endswith(b"\n")
            assert read(line) == sent


def test_no_message_is_missing_here():
    tried = {type(sent) for sent in (*REQUESTS, *EVENTS, *WORDS)}
    bases = {getattr(messages, name) for name in ("Message", "Request", "Event", "OfRank")}
    assert tried == _below(messages.Message) - bases


def _below(kind: type) -> set[type]:
    """All kinds of messages, less those that an engine has for itself."""
    found = {kind}.union(*map(_below, kind.__subclasses__()))
    return {each for each in found if each.__module__ == messages.__name__}


def test_what_is_no_message_is_refused(subtests):
    for line in (
        b"",
        b"hello\n",
        b"[]\n",
        b'{"message": "Launch"}\n',
        messages.encode(messages.Stop(job="j")),
    ):
        with (
            subtests.test(line),
            pytest.raises(messages.ProtocolError, match="Not a message of distlab's"),
        ):
            messages.read_event(line)


def test_a_supervisor_of_another_version_is_refused(tmp_path):
    """One that is really another: a copy of the package, found first, with another number."""
    copy = tmp_path / "distlab"
    shutil.copytree(Path(distlab.__file__).parent, copy)
    file = copy / "launching" / "protocol" / "messages.py"
    now = f"VERSION = {messages.VERSION}\n"
    assert now in file.read_text()
    file.write_text(file.read_text().replace(now, f"VERSION = {messages.VERSION + 1}\n"))
    code = f"""
    os.environ["PYTHONPATH"] = {str(tmp_path)!r}
    os.chdir("/")  # where no other is found before it
    try:
        distlab.run(print, 2, timeout=30)
    except distlab.RankError as error:
        say(str(error))
    """
    with Kernel(code) as kernel:
        said = kernel.heard()
        assert "The supervisor is of another version of distlab" in said
        assert f"have the version {messages.VERSION + 1}, ours {messages.VERSION}" in said
        assert "Install the same distlab in both places" in said
        assert kernel.process.wait(20) == 0
