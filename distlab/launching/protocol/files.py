"""The files by which ranks and the kernel tell each other what is too much for a message."""

import io
import pickle
from pathlib import Path
from typing import Any, NoReturn


def rank_file(directory: Path, rank: int, attempt: int, kind: str) -> Path:
    """The file of one attempt of one rank in its job's directory."""
    return directory / f"rank{rank}-attempt{attempt}.{kind}"


def write_result(path: Path, value: Any) -> None:
    """Write what a rank returned, all or nothing: a reader never sees half a file."""
    import cloudpickle

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        dispatch_table = cloudpickle.Pickler.dispatch_table.new_child({io.TextIOWrapper: _refuse})

    partial = path.with_suffix(".partial")
    try:
        with partial.open("wb") as file:
            Pickler(file, protocol=5).dump(value)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise OSError(error.errno, f"The rank's result could not be written: {error}") from None
    except Exception as error:  # noqa: BLE001 - raised again, with its words
        kind = type(value).__name__
        raise TypeError(
            f"The rank's result, of type {kind}, cannot be sent back: {error}. "
            "Return plain data: numbers, strings, arrays, or containers of them."
        ) from None
    partial.rename(path)


def _refuse(file: io.TextIOWrapper) -> NoReturn:
    """Refuse an open file, which would come back as an io.StringIO."""
    raise TypeError(f"the open file {file.name!r} stays in its process")


def read_result(path: Path) -> Any:
    """Read what a rank returned."""
    with path.open("rb") as file:
        try:
            return pickle.load(file)
        except Exception as error:  # noqa: BLE001 - raised again, with its words
            what = f"{type(error).__name__}: {error}"
            raise TypeError(
                f"What a rank returned cannot be read in this process ({what}). "
                "Return plain data: numbers, strings, arrays, or of a model its state_dict()."
            ) from None
