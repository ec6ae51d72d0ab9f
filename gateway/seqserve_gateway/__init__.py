"""The doors over HTTP: JSON, forms of other services, and a page on which to try models."""
