"""How a sweep is shown: progress, reports and comparisons."""
