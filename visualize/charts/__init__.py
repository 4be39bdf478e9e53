"""Charts: one file each, found by listing this folder; the contract is in `visualize.drawing.rows`."""
