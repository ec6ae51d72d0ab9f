"""A clock that a test moves."""


class Clock:
    """Stands for :func:`time.monotonic`."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s
