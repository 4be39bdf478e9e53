"""What a sweep measures: requests, cells and points."""
