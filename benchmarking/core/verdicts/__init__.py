"""The statistics of verdicts: the same words, intervals and rules for every command, report, chart and page."""
