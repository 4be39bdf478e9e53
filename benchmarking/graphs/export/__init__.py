"""From a torch model to a bundle of graphs, in the preparing process. Imports torch."""
