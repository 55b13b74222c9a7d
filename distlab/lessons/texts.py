"""A text for lessons on language models, which every Python has with it."""

import codecs
import contextlib
import io

__all__ = ["zen"]


def zen() -> str:
    """Returns the Zen of Python: 856 characters of English, in 21 lines.

    Example:
        >>> zen()[:21]
        'The Zen of Python, by'
    """
    with contextlib.redirect_stdout(io.StringIO()):
        import this  # it prints the text, which it holds encoded
    return codecs.decode(this.s, "rot13")
