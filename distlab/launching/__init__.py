"""From `launch()` to the ranks and back: the kernel's side, the supervisor's, and engines."""
