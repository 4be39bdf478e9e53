"""Many models in one command: what is asked, its plan, its progress on disk, and its summary."""
