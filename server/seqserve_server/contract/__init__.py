"""What both processes share: requests, events, messages, artifacts. Never loads numpy."""
