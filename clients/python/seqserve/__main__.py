"""Starts the ``seqserve`` command."""

from seqserve.command import process


def run() -> None:
    """Runs a command and ends the process."""
    process.begin()
    from seqserve.command.main import main

    process.end_with(main())


if __name__ == "__main__":
    run()
