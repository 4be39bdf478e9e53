"""Code that several importers share."""
