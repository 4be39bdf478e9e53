"""The report of a selection of results: one HTML file for people, or Markdown for a pull request."""
