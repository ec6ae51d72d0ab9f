"""The front's end of an engine's process: requests go out, events come in."""
