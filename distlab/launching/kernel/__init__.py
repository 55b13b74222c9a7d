"""The kernel's side: a job, what becomes of its ranks, and how it is told."""
