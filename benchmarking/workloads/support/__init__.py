"""What several architecture families share."""
