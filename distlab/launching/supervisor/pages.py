"""Pages of memory that every rank uses: one that waits has had them brought already.

A fork shares its pages with the supervisor until it writes to them, be it a reference count, and
finds a library's code anew. Each first use takes some microseconds, a rank's way through Python and
a framework a thousand of them.
"""

import contextlib
import ctypes
import itertools
import mmap
from array import array
from pathlib import Path

_MOST = 16384
"""Pages that are known: 64 MiB."""
_POPULATE_READ = 22
_POPULATE_WRITE = 23
"""To `madvise`: have these pages as if they were read or written to, from Linux 5.14 on."""
_WRITTEN = 1 << 62
"""Beside the number of a page: it was written to."""
_PRESENT = 1 << 63
_ONLY_OURS = 1 << 56
"""In an entry of /proc/self/pagemap: this process has the page, and no other one has."""


class Pages:
    """The pages that the first rank had used when it ended, known to all forked later.

    It must be made before any of them is forked.
    """

    def __init__(self) -> None:
        self._shared = mmap.mmap(-1, (_MOST + 1) * 8)

    def learn(self) -> None:
        """In a rank at its end: note the pages that it has used, unless some are known."""
        if self._shared[0]:
            return
        self._shared[0] = 1
        found = array("Q")
        memory = Path("/proc/self")
        with contextlib.suppress(OSError), (memory / "pagemap").open("rb", 0) as entries:
            for line in (memory / "maps").read_text().splitlines():
                place, access, _, _, node, *_ = line.split()
                if access == "rw-p":
                    wanted, mark = _ONLY_OURS, _WRITTEN
                elif access.startswith("r") and access.endswith("p") and node != "0":
                    wanted, mark = _PRESENT, 0
                else:
                    continue
                start, end = (int(word, 16) // mmap.PAGESIZE for word in place.split("-"))
                entries.seek(start * 8)
                pages = array("Q", entries.read((end - start) * 8))
                found.extend(mark | start + i for i, entry in enumerate(pages) if entry & wanted)
        known = found[:_MOST].tobytes()
        self._shared[8 : 8 + len(known)] = known

    def copy(self) -> None:
        """In a process that waits: have these pages already."""
        advise = ctypes.CDLL(None).madvise
        advise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        known = itertools.takewhile(bool, array("Q", self._shared[8:]))
        for _, run in itertools.groupby(enumerate(known), lambda pair: pair[1] - pair[0]):
            numbers = [number for _, number in run]
            how = _POPULATE_WRITE if numbers[0] & _WRITTEN else _POPULATE_READ
            first = numbers[0] & ~_WRITTEN
            # What is not there any more is refused.
            advise(first * mmap.PAGESIZE, len(numbers) * mmap.PAGESIZE, how)
