"""How a sweep runs: supervisor, worker processes and run files."""
