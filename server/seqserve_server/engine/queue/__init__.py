"""Which requests wait, run next, or are refused."""
