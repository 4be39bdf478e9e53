"""Models as exported graphs: the contents of a bundle, how it is made, and the calls made from it."""
