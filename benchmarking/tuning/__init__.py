"""The search for the configuration to deploy: its space, the race between configurations, and the measuring session."""
