"""What a request may ask for in addition to a translation: each feature reads and writes."""
