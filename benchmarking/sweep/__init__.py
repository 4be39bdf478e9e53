"""Runs a plan: a light supervisor, one worker process per cell and launch, everything spooled before it is believed."""
