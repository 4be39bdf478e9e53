"""Device kinds: one plugin per file."""
