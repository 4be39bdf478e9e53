"""The `benchhouse` commands that query, analyse and move stored results; each module has a `main`."""
