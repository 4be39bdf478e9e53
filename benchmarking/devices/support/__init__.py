"""What several kinds of device share."""
