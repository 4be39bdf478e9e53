"""Shared base of runtimes on inference engines, which generate tokens by themselves, from files of their own."""
