"""Judges stored results: compares selections, finds changes in histories, gates the newest run, recommends."""
