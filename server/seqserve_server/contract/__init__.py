"""What both processes share: requests, events, messages, bounds. Never loads numpy."""
