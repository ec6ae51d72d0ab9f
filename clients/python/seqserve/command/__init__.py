"""The commands of ``seqserve`` that need only the client, and the table of all commands."""
