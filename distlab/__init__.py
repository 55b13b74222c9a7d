"""Distributed deep learning on one machine: virtual devices, real digits, background ranks.

`import distlab` imports no framework; each helper imports the one it is asked for.
"""

from distlab.devices import virtual_devices

__all__ = ["virtual_devices"]
__version__ = "0.1.0"
