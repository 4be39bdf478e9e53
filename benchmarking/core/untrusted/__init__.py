"""What is read of files, folders and texts that others made: within limits, and without running anything."""
