"""Several front processes of one server, which share its port, its versions and its engines."""
