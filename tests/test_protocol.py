"""What kernel, supervisors and ranks say to one another: what is no word of it is refused."""

import shutil
from pathlib import Path

import pytest
from _processes import Kernel

import distlab
from distlab.launching.protocol import messages


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
