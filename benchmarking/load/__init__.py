"""Load tests of a server: the traffic, the generator, and the results."""
