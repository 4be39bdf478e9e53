"""Finding the commit at which a metric changed."""
