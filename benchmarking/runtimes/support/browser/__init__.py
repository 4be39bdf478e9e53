"""Running models in pages of a real browser."""
