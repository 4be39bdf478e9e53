"""What several runtimes share."""
