"""What a rank holds instead of numbers: handles that know a shape."""

import weakref
from collections.abc import Callable
from typing import Any, NoReturn


class Tensor:
    """A tensor of this rank: a shape and a name, but no numbers, which only the keeper has.

    What no variable holds any more is free.

    Args:
        number: By which the keeper knows it.
        shape: Its rows and columns, if they are known yet.
        ask: Finds out the shape of a tensor.
        dropped: Takes the number when nobody holds the handle any more.

    Attributes:
        what: The call that it comes from.
    """

    __slots__ = ("__weakref__", "_ask", "_number", "_shape", "what")

    def __init__(
        self,
        number: int,
        shape: tuple[int, ...] | None,
        what: str,
        ask: Callable[["Tensor"], tuple[int, ...]],
        dropped: list[int],
    ) -> None:
        self._number = number
        self._shape = shape
        self._ask = ask
        self.what = what
        weakref.finalize(self, dropped.append, number).atexit = False

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and columns. Of what is received: once the other rank has called send."""
        if self._shape is None:
            self._shape = self._ask(self)
        return self._shape

    @property
    def bytes(self) -> int:
        """What it takes in memory, four bytes a number."""
        size = 4
        for length in self.shape:
            size *= length
        return size

    def __repr__(self) -> str:
        shape = "on its way" if self._shape is None else f"shape {self._shape}"
        return f"<tensor from {self.what}, {shape}>"

    def __len__(self) -> NoReturn:
        raise TypeError("A tensor has no length: tensor.shape tells its rows and columns.")

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> NoReturn:
        raise TypeError(
            f"This is one tensor, from {self.what}, and not several. me.split divides a tensor."
        )

    def __copy__(self) -> NoReturn:
        raise TypeError("A tensor is a handle and cannot be copied.")

    def __deepcopy__(self, _: dict[int, Any]) -> NoReturn:
        self.__copy__()

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError(
            "A tensor is a handle and holds no numbers: use me.add, me.split, me.join or "
            "me.compute."
        )

    __add__ = __radd__ = __iadd__ = __sub__ = __mul__ = __rmul__ = __matmul__ = __truediv__ = (
        _refuse
    )
    __getitem__ = __setitem__ = __float__ = __int__ = __array__ = _refuse
