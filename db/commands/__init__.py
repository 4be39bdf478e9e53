"""The commands behind `benchhouse` that ask, judge and move what is stored; each module has a `main`."""
