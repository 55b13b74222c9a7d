"""Imported first: an interrupt of `python -m distlab` amid its imports shows no traceback."""

import sys
import types


def _show(
    kind: type[BaseException], error: BaseException, trace: types.TracebackType | None
) -> None:
    if not issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)


if sys.argv[:1] == ["-m"]:  # so it is while Python looks for the module that it is to run
    sys.excepthook = _show
