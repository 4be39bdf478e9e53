"""Importers of other tools' result files, one plugin per file."""
