"""The ``seqserve`` command: the table of its sub-commands, and those that belong to the client."""
