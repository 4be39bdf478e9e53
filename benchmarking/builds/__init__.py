"""The build cache: exports, engines, compiled code and reference outputs, found again by what they were made from."""
