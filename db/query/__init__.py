"""Questions in SQL, and their answers."""
