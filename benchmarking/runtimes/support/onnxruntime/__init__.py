"""ONNX Runtime: sessions, options and calls."""
