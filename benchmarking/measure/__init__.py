"""Measures one operation at one point. `point.measure_point` tells the story; each step has its own file."""
