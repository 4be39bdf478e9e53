"""Measuring the models of scripts that know nothing of this program."""
