"""Web pages of a warehouse: for the server of `benchhouse dashboard`, and for files."""
