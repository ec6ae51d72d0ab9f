"""Who waits, who runs next, and who is refused."""
