"""Chart plugins, one file each, found by listing this folder; `visualize.drawing.rows` defines their contract."""
