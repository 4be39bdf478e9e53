"""Views: each module has one kind of page, some with a list and a detail page."""
