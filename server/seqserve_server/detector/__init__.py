"""The process that detects languages, so that the front never waits for it."""
