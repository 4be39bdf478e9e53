"""One selection of results judged against another."""
