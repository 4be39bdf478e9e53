"""Charts: one file each, found by listing this folder, its query beside it."""
