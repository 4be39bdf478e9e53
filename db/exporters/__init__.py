"""Exporters to other tools' formats, one plugin per file."""
