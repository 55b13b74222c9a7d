"""What a notebook shows of a job: a table that keeps itself up to date, and a line while it waits."""
