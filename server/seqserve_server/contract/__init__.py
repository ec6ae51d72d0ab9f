"""The contract of both processes: requests, events, messages, bounds. Never loads numpy."""
