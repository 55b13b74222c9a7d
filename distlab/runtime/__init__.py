"""The kernel's side: launching ranks, following them, and telling how they ended."""
