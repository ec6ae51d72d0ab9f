"""How many examples a property is tried with."""

from hypothesis import settings

FACTOR = 10
"""Factor of the number of examples in a random search, ``make fuzz``."""


def examples(count: int) -> settings:
    """Returns settings of so many examples, the same in each run; a random search tries more."""
    return settings(max_examples=count if settings.default.derandomize else count * FACTOR)
