"""Every verb of the client: ``python clients/examples/python/sync.py [TARGET]``."""

from __future__ import annotations

import sys

from seqserve import Client, InvalidArgument


def main(target: str) -> None:
    """Asks a server that runs at ``target``."""
    with Client(target, timeout_s=10.0) as client:
        for model in client.models():
            print(f"{model.name}/{model.version} is {model.state.value}: {model.description}")

        result = client.generate("The coffee tastes good.")
        print(f"{result.text}  (score {result.score:.2f}, {result.timings.total_ms:.1f} ms)")

        for piece in client.stream("We watched a film."):
            print(piece.text, end="", flush=True)
        print()

        try:
            client.generate("Good morning.", max_decoding_length=0)
        except InvalidArgument as error:
            print(f"refused, as it should be: {error}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "localhost:50051")
