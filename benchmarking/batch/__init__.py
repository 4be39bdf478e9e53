"""Many models in one command: the request, its plan, its progress on disk, and its summary."""
