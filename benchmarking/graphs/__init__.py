"""Models as exported graphs: the contents of a bundle, how it is made, and the calls made from it.

A bundle is a build of kind "onnx": one or more ONNX files and the facts needed to run them. Making a bundle needs
torch; running it does not, so a measurement of a graph runtime contains nothing of torch.
"""
