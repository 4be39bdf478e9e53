"""Which measured configuration meets a need."""
