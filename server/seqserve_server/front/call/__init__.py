"""What surrounds every call: its record, its memory, its status, its metrics."""
