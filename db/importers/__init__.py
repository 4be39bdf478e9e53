"""Importers of other tools' result files, one plugin a file."""
