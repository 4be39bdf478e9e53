"""Exporters to other tools' formats, one plugin a file."""
