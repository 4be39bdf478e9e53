"""Reading untrusted files, folders and text: within limits, and without running anything."""
