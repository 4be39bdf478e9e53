"""Judges what is stored: two selections against each other, a series' history, the newest run against its segment."""
