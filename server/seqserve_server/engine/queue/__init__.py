"""The queue: requests that wait, run next, or are refused."""
