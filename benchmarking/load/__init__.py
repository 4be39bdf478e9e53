"""Load on a server, as users send it: what is sent and when, the generator, and what its requests say."""
