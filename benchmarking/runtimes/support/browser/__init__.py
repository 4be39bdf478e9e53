"""Models in the pages of a real browser."""
