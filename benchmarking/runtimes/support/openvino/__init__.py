"""OpenVINO: builds, compilation and calls."""
