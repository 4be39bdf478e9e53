"""The ground: tables that every room takes its words and names from. Imports nothing above it."""
