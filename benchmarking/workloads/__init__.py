"""Architecture families, one plugin a file."""
