"""What the kernel, supervisors, engines and ranks tell one another: messages, files, functions."""
