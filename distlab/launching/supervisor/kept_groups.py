"""PyTorch's process groups live as long as their rank, whatever the target lets go of.

If the last to hold a group is DDP's reducer, as after `destroy_process_group()` at the end of a
function with a DDP model, then the group's destructor waits for a thread of gloo's with the GIL
in hand, while that thread may need the GIL to end: for ever (torch 2.13). A rank ends without
running destructors, so a group that is held here is never destroyed.

All this touches private names, which are there from torch 2.11 on at least. Where they are not,
nothing is held, and nothing is harmed.
"""

import itertools
import sys
from importlib import machinery
from types import ModuleType
from typing import Any

_MODULE = "torch.distributed.distributed_c10d"
_kept: list[object] = []
"""Every group that this process has formed, subgroups and those of device meshes included."""


def keep() -> None:
    """Hold all groups that are formed from now on, also if torch is imported only later."""
    if module := sys.modules.get(_MODULE):
        _watch(module)
    else:
        sys.meta_path.insert(0, _Finder())


def _watch(module: ModuleType) -> None:
    known, world = getattr(module, "_pg_map", None), getattr(module, "_world", None)
    if type(known) is dict and isinstance(vars(type(world)).get("group_count"), property):
        module.__dict__["_pg_map"] = _Remembering(known)
        _name_worlds_apart(world)


class _Remembering(dict[Any, Any]):
    """PyTorch's register of groups, where it enters all that it forms."""

    def __setitem__(self, group: object, value: object) -> None:
        _kept.append(group)
        super().__setitem__(group, value)


def _name_worlds_apart(world: Any) -> None:
    """Have no group take the name of one that was destroyed.

    By its name its members find one another. PyTorch counts from 0 again when all groups are
    destroyed, and a rank that finds the old address of another would join the group held here.
    """
    kind = type(world)
    starts = itertools.count(1_000_000, 1_000_000)

    class World(kind):  # type: ignore[valid-type, misc]
        @property
        def group_count(self) -> int:
            return int(super().group_count)

        @group_count.setter
        def group_count(self, value: int) -> None:
            kind.group_count.fset(self, value or next(starts))

    world.__class__ = World


class _Finder:
    """Finds that one module where Python would, to watch it once it has been imported."""

    def find_spec(self, name: str, path: Any, _: object = None) -> machinery.ModuleSpec | None:
        if name != _MODULE:
            return None
        spec = machinery.PathFinder.find_spec(name, path)
        if spec is not None and (loader := spec.loader) is not None:
            execute = loader.exec_module

            def watched(module: ModuleType) -> None:
                execute(module)
                _watch(module)

            loader.exec_module = watched  # type: ignore[method-assign]
        return spec
