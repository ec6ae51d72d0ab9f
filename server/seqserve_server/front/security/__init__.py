"""TLS and tokens, and the files they are reloaded from."""
