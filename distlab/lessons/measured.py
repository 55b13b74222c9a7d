"""Bytes of a training, measured to hold formulas to: those received, those kept by autograd."""

import os
import socket
import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

__all__ = ["bytes_received", "bytes_saved"]


def bytes_received() -> int:
    """Returns how many bytes have arrived over this process's TCP connections, by Linux's count.

    It reads `tcpi_bytes_received` of each connection (`TCP_INFO` in tcp(7)), so it works on Linux
    alone, and what has arrived over connections that are closed again is not in it.
    """
    total = 0
    for entry in Path("/proc/self/fd").iterdir():
        try:
            if not str(entry.readlink()).startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(entry.name))) as connection:
                if connection.family in (socket.AF_INET, socket.AF_INET6):
                    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 136)
                    total += int(struct.unpack_from("Q", info, 128)[0])
        except OSError:
            pass  # closed meanwhile
    return total


def bytes_saved(call: Callable[[], Any], without: "Iterable[torch.Tensor]" = ()) -> tuple[Any, int]:
    """Returns the result of a call, and the bytes that autograd keeps of it.

    Tensors that share their memory count once.

    Args:
        call: Computes something that needs a gradient.
        without: Tensors that do not count, such as the weights, which are kept anyway.

    Example:
        >>> x = torch.ones(1000, requires_grad=True)  # float32
        >>> bytes_saved(lambda: (x * x).sum())[1], bytes_saved(lambda: (x * x).sum(), [x])[1]
        (4000, 0)
    """
    import torch

    left_out = {tensor.untyped_storage().data_ptr() for tensor in without}
    kept: dict[int, torch.UntypedStorage] = {}  # they stay alive, so no address is used twice

    def note(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in left_out:
            kept[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        result = call()
    return result, sum(storage.nbytes() for storage in kept.values())
