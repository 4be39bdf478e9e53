"""Shared parts of charts: their contract and rows, texts, theme, layout and lines."""
