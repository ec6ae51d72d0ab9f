"""What each process of the server does: log lines, its children and signals, freed memory."""
