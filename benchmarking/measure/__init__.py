"""Measures one operation at one point: `point.measure_point` runs the passes, `aggregate` combines the launches."""
