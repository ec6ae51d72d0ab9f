"""Features that a request may add to a translation: each one reads and writes."""
