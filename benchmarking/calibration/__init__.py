"""The peak rates of a device, measured."""
