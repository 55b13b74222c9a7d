"""Distributed deep learning on one machine: virtual devices, real digits, background ranks.

`import distlab` imports no framework; each helper imports the one it is asked for.
"""

from distlab import layouts
from distlab.devices import virtual_devices

__all__ = ["layouts", "virtual_devices"]
__version__ = "0.1.0"
