"""A page in the browser on which to try the models of a server, and to look inside."""
