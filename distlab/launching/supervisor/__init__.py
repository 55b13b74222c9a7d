"""The supervisor's side: forking ranks, watching them, ending them, and what a rank does."""
