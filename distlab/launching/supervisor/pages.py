"""Pages of memory that every rank writes to, and so copies: one that waits has done that already.

A fork shares its pages with the supervisor until it writes to them, be it a reference count. Each
first write takes some microseconds, a rank's way through Python and a framework a thousand of them.
"""

import contextlib
import ctypes
import itertools
import mmap
from array import array
from pathlib import Path

_MOST = 4096
"""Pages that are known: 16 MiB."""
_POPULATE_WRITE = 23
"""To `madvise`: copy these pages as if they were written to, from Linux 5.14 on."""
_ONLY_OURS = 1 << 56
"""In an entry of /proc/self/pagemap: no other process has this page."""


class Pages:
    """The pages that the first rank had written to when it ended, known to all forked later.

    It must be made before any of them is forked.
    """

    def __init__(self) -> None:
        self._shared = mmap.mmap(-1, (_MOST + 1) * 8)

    def learn(self) -> None:
        """In a rank at its end: note the pages that it has for itself, unless some are known."""
        if self._shared[0]:
            return
        self._shared[0] = 1
        found = array("Q")
        memory = Path("/proc/self")
        with contextlib.suppress(OSError), (memory / "pagemap").open("rb", 0) as entries:
            for line in (memory / "maps").read_text().splitlines():
                place, access, *_ = line.split()
                if access == "rw-p":
                    start, end = (int(word, 16) // mmap.PAGESIZE for word in place.split("-"))
                    entries.seek(start * 8)
                    pages = array("Q", entries.read((end - start) * 8))
                    found.extend(start + i for i, entry in enumerate(pages) if entry & _ONLY_OURS)
        known = found[:_MOST].tobytes()
        self._shared[8 : 8 + len(known)] = known

    def copy(self) -> None:
        """In a process that waits: have these pages for itself."""
        advise = ctypes.CDLL(None).madvise
        advise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        known = itertools.takewhile(bool, array("Q", self._shared[8:]))
        for _, run in itertools.groupby(enumerate(known), lambda pair: pair[1] - pair[0]):
            numbers = [number for _, number in run]
            # What is not there any more is refused.
            advise(numbers[0] * mmap.PAGESIZE, len(numbers) * mmap.PAGESIZE, _POPULATE_WRITE)
