"""What ranks do in tests. A module that imports next to nothing, since ranks have to import it."""

import ctypes
import os
import time


def rank() -> int:
    """Which rank this is."""
    return int(os.environ["RANK"])


class Adder:
    """Has a method to run."""

    def __init__(self, amount: int) -> None:
        self.amount = amount

    def add(self, number: int = 0) -> int:
        """The rank, and what it is to be added to."""
        return rank() + self.amount + number


def crash() -> None:
    """Read where nothing is."""
    ctypes.string_at(0)


def nap() -> None:
    """Print something, then wait to be ended."""
    print("asleep")
    time.sleep(600)


def chat(last: str) -> None:
    """Print two lines, then wait to be ended."""
    print("first")
    print(last, flush=True)
    time.sleep(600)


def fail_on_one() -> None:
    """Fail on rank 1; on others wait to be ended."""
    print("about to think")
    if rank() == 1:
        raise ValueError("no <such> number\nat all")
    time.sleep(600)
