"""The frame of every call: its record, its memory, its status, its metrics."""
