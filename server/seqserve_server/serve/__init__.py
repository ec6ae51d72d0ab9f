"""The command ``seqserve serve``: its processes, and the server of all services on one port."""
