"""PyTorch: models, sessions and counters."""
