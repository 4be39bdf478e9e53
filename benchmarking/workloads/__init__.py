"""Architecture families: one plugin per file."""
