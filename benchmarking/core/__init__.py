"""Records, contracts, tables and helpers for all other packages, none of which it imports."""
