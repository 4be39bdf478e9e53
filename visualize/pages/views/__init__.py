"""The views of the pages: each module answers one kind of address."""
