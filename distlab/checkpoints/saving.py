"""One rank's part in a save of several: what each wrote comes together with the chief's."""

import contextlib
import fcntl
import logging
import os
import re
import tempfile
import time
from collections.abc import Collection
from io import FileIO
from pathlib import Path
from typing import BinaryIO

from distlab import ranks
from distlab.checkpoints import places, swapping

_MEET = 5.0
"""Seconds for which a chief with a directory waits for ranks that may be yet to come."""
_PATIENCE = 120.0
"""Seconds for which a rank that has saved waits for the chief to begin."""
_LOOK = 0.02
"""Seconds between looks for another rank: a file system that several machines share tells nobody
that a file has come to be."""
_DONE, _LEFT = b"done", b"left"
"""What a rank's lock holds: its block has ended well; the chief has come and failed."""
_SHARD = re.compile(r"\.distcp$|-of-0*([2-9]|1\d)\d*(\D|$)")
"""What PyTorch, TensorFlow and Hugging Face call one file of several."""

_partners: dict[Path, set[int]] = {}
"""Who saved with this chief the last time, by the directory saved in."""
_saved: dict[Path, tuple[int, float] | None] = {}
"""What was in the place of a target when this rank last saved to it."""
_unseen: set[Path] = set()
"""Directories in which this rank has waited for a chief in vain."""


class Save:
    """A directory of this rank's own, and a lock that is held until the save is left.

    It is beside the target, since a rename works within one file system, and by a name that depends
    on the target alone, so what a killed process leaves is found again.

    Args:
        target: What is to be replaced.
        info: The place of this rank in its group.

    Attributes:
        rank: Its number; 0 is the chief.
        own: Where this rank is to save.
    """

    def __init__(self, target: Path, info: ranks.RankInfo) -> None:
        self.rank = info.rank
        self._target = target
        self._world_size = info.world_size
        self._one_machine = info.local_world_size == info.world_size
        self._place = target.with_name(f".{target.name}.saving")
        self.own = self._place / str(info.rank) / target.name

    def enter(self) -> None:
        """Begin to save, when nobody else saves there as this rank."""
        self._place.parent.mkdir(parents=True, exist_ok=True)
        lock = self._place / f"{self.rank}.lock"
        while True:
            with places.alone(self._place):
                places.clear(self._place)
                if not lock.exists():
                    self._lock = FileIO(lock, "a+")
                    fcntl.flock(self._lock, fcntl.LOCK_EX)
                    if self.own.parent.exists():  # a thread has saved on after its block
                        swapping.remove(self.own.parent)
                    self.own.parent.mkdir()
                    return
            places.wait(lock if places.held(lock) else self._place / "0.lock")  # another program's

    def leave(self) -> None:
        """Let go of the place of the save, which goes with the last that leaves it."""
        if self.rank == 0 and not self._lock.closed:  # it has failed
            for lock in self._others():
                with lock.open("ab") as file:
                    file.write(_LEFT)
        with places.alone(self._place):
            self._let_go()
        _saved[self._target] = _identity(self._target)

    def _let_go(self) -> None:
        self._lock.close()
        places.clear(self._place)

    # The chief.

    def conclude(self) -> None:
        """End the block of the chief: fetch what the others have, and put all in its place."""
        self._await_others()
        while True:
            with places.alone(self._place):
                others = self._others()
                busy = [lock for lock in others if places.held(lock)]
                if not busy:
                    for lock in others:
                        self._fetch(self._place / lock.stem, _DONE in lock.read_bytes())
                    self._put_all()
                    self._let_go()  # before anybody can come and take it for unfinished
                    return
            places.wait(busy[0])

    def _await_others(self) -> None:
        """Give others a while to begin, where what they write may be parts of it."""
        wanted = _partners.get(self._target.parent, set(range(1, self._world_size)))
        until = time.monotonic() + _MEET * (not self.own.is_file())
        while True:
            there = {int(lock.stem) for lock in self._others()}
            if wanted <= there or time.monotonic() >= until:
                break
            time.sleep(_LOOK)
        _partners[self._target.parent] = there

    def _others(self) -> list[Path]:
        return [lock for lock in self._place.glob("*.lock") if lock.stem != "0"]

    def _fetch(self, theirs: Path, done: bool) -> None:
        """Take from another rank what the chief has not written."""
        mine = self.own.parent
        missing = _written(theirs) - _written(mine)
        if not missing:
            return
        who = f"Rank {theirs.name} saved {self._some(missing, theirs)}"
        if not done:
            raise RuntimeError(
                f"{who} and then failed: nothing was replaced, for that may be only a part of its "
                "part."
            )
        for name in sorted(missing):  # a directory before what is in it
            if (mine / name).parent.is_file():
                raise RuntimeError(
                    f"{who}, in a directory, and the chief a file. Nothing was replaced; they are "
                    f"kept in {self._keep(theirs)!r} and {self._keep(mine)!r}. Save to a "
                    "directory on all ranks, or to a file."
                )
            if (theirs / name).exists() or (theirs / name).is_symlink():
                (theirs / name).rename(mine / name)

    def _put_all(self) -> None:
        mine = self.own.parent
        shards = any(self.own.glob("*.distcp")) and not (self.own / ".metadata").exists()
        if shards or any(mine.glob("*.orbax-checkpoint-tmp*")):
            raise RuntimeError(
                f"What was saved for {str(self._target)!r} is not complete yet, so nothing was "
                "replaced: wait within the block until it is, as by async_save(...).result() or "
                "wait_until_finished()."
            )
        if strays := {each.name for each in mine.iterdir()} - {self.own.name}:
            raise RuntimeError(
                f"What was saved for {str(self._target)!r} has other names: "
                f"{self._some(strays, mine)}. It cannot take that place in one step, so nothing "
                f"was replaced, and it is kept in {self._keep(mine)!r}. Give replacing() the name "
                "with the ending that is added, or save to a directory: own.mkdir(), then own / "
                "'ckpt'."
            )
        if not os.path.lexists(self.own):
            raise FileNotFoundError(
                f"Nothing was saved for {str(self._target)!r}: save to the path that replacing() "
                "gives, before its block ends."
            )
        swapping.put(self.own, self._target)

    # The others.

    def hand_over(self) -> None:
        """End the block of another rank: the chief takes what it needs, now or when it comes."""
        written, parts = _written(self.own.parent), self.own.is_dir()
        some = self._some(written, self.own.parent)
        with (self._place / f"{self.rank}.lock").open("rb") as mine:  # also when it is gone
            self._lock.write(_DONE)
            if (chief := self._find_chief(written)) is not None:
                with chief:
                    fcntl.flock(chief, fcntl.LOCK_EX)  # until it is done
            if parts and _LEFT in mine.read():
                raise RuntimeError(
                    f"The chief failed while rank {self.rank} saved {some}: nothing was replaced."
                )

    def _find_chief(self, written: set[str]) -> BinaryIO | None:
        """Wait for the chief; return its lock, or None where it has been there or need not come."""
        began = time.monotonic()
        patience = 0.0 if self._target.parent in _unseen else _PATIENCE
        told = False
        while True:
            with places.alone(self._place):
                if _LEFT in (self._place / f"{self.rank}.lock").read_bytes():
                    return None
                if places.held(lock := self._place / "0.lock"):
                    self._lock.close()  # the chief waits for it
                    return lock.open("rb")
                if not written:
                    return None
                if self._is_late():
                    self._check_late(written)
                    return None
                if (waited := time.monotonic() - began) >= patience:
                    self._give_up(written)
                    return None
            if waited > _MEET and not told:
                told = True
                waits = "rank %d has saved to %s and waits for the chief, which has not begun to"
                _log().warning(waits, self.rank, self._target)
            time.sleep(_LOOK)

    def _is_late(self) -> bool:
        """Whether the chief is not there because it has saved already."""
        there = _identity(self._target)
        if there is None:
            return False
        if self._target in _saved and self.own.is_dir():
            return there != _saved[self._target]
        return there[1] > ranks.began()  # a file has no parts: any from this job will do

    def _check_late(self, written: set[str]) -> None:
        place = self._target.parent
        if missing := {name for name in written if not os.path.lexists(place / name)}:
            raise RuntimeError(
                f"Rank {self.rank} saved {self._some(missing, self.own.parent)}, and the chief had "
                f"saved {str(self._target)!r} without it before this rank began. It is kept in "
                f"{self._keep(self.own.parent)!r}: let the ranks meet before the block ends, in a "
                "barrier or another collective."
            )

    def _give_up(self, written: set[str]) -> None:
        """The chief has not come: it saves elsewhere, or not at all."""
        known = self._target.parent in _unseen
        shards = any(_SHARD.search(name) for name in written)
        if known and not shards:
            return
        some, kept = self._some(written, self.own.parent), self._keep(self.own.parent)
        message = (
            f"Rank {self.rank} saved {some}, and the chief (rank 0) saves to "
            f"{str(self._target)!r} on another file system or not at all. It is kept in {kept!r}: "
            "let all ranks save, to a path that they all see. A file of each rank's own goes into "
            f"a directory that all save: own.mkdir(), then own / 'rank{self.rank}'."
        )
        if shards or self._one_machine:
            raise RuntimeError(message)
        # As where each machine has a disk of its own, and all that counts is what the chief has.
        _unseen.add(self._target.parent)
        _log().warning("%s What it saves there from now on does not count.", message)

    def _some(self, names: Collection[str], folder: Path) -> str:
        """The first of the files among what was written, by their paths from the target on."""
        files = sorted(name for name in names if not (folder / name).is_dir()) or sorted(names)
        shown = [name.removeprefix(f"{self._target.name}/") for name in files]
        more = len(shown) - 4
        return ", ".join([*shown[:4], *([f"{more} more"] if more > 0 else [])])

    def _keep(self, folder: Path) -> str:
        """Move all that a rank has written out of the place of a save, which goes."""
        kept = tempfile.mkdtemp(prefix=f"{self._target.name}.kept-", dir=self._target.parent)
        for each in folder.iterdir():
            each.rename(Path(kept, each.name))
        return kept


def _log() -> logging.Logger:
    return logging.getLogger("distlab")


def _written(folder: Path) -> set[str]:
    """All that is below a directory, by its path from there."""
    return {str(each.relative_to(folder)) for each in folder.rglob("*")}


def _identity(path: Path) -> tuple[int, float] | None:
    """What tells a file or directory from one that takes its place: its number, and since when."""
    with contextlib.suppress(FileNotFoundError):
        found = path.lstat()
        return found.st_ino, found.st_ctime
    return None
