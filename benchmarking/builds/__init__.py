"""The build cache: exports, engines, compiled code and reference outputs, keyed by everything they were made from."""
