"""Charts, reports and web pages of the warehouse or of run files."""
