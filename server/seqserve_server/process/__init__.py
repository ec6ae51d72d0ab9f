"""Support for each process of the server: log lines, children and signals, freed memory."""
