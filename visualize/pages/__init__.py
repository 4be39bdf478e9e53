"""Web pages of a warehouse, served by `benchhouse dashboard` or written as a static site."""
