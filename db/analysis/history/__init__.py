"""Series over time, and where their level changed."""
