"""Runs plans: a light supervisor, one worker process per cell and launch, and results saved as they arrive."""
