"""What several exporters share."""
