"""The plan of a sweep: requests, cells and points."""
