"""Keeps the notebooks in one shape."""

print("notebooks: nothing to check yet")
