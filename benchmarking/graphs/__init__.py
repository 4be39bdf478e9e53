"""Models as exported graphs: what is in a bundle of them, how it is made, and the calls that are made of it.

A bundle is a build of the kind "onnx": one or more ONNX files and what has to be known to run them. Making one takes
torch; running one does not, so that what a runtime on graphs measures holds nothing of torch.
"""
