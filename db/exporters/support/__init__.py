"""Shared by the exporters: the request and its output, the selected rows and runs."""
