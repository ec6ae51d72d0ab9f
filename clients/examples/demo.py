"""Starts a server on the shipped model, translates a few sentences, and stops it.

``make demo`` runs it: one call and the way back, a stream, another language, calls at once.
"""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from seqserve import Client, Result, SeqserveError

SENTENCES = [
    "The coffee tastes good.",
    "Where is the nearest train station?",
    "I would like to speak with your sister.",
    "She has been living in Berlin for three years.",
    "If it rains tomorrow, we will stay at home.",
    "Could you please open the window?",
    "My brother forgot to lock the door.",
    "What time does the museum open?",
]
STREAMED = "If I had more time, I would learn to play the piano."
KOREAN = "영화가 재미있다"


@contextmanager
def server() -> Iterator[str]:
    """Runs ``seqserve serve`` on free ports of this machine and yields its address."""
    command = [sys.executable, "-m", "seqserve", "serve", "--port", "0", "--metrics-port", "0"]
    # models/ may have other models by now, and the environment another format.
    command += ["--default-model", "en-de", "--log-level", "warning", "--log-format", "text"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        ready = re.search(r"ready on (\S+),", line)
        if ready is None:
            raise SystemExit(f"the server did not start: exit status {process.wait()}")
        print(line)
        try:
            yield ready[1]
        finally:
            process.send_signal(signal.SIGTERM)
            if process.wait(timeout=30) != 0:
                raise SystemExit(f"the server failed to stop: exit status {process.returncode}")


def show(source: str, result: Result) -> None:
    """Prints a source, its translation and its speed."""
    timings = result.timings
    tokens_per_s = 1e3 * result.generated_tokens / timings.decode_ms if timings.decode_ms else 0
    print(f"  {source}\n  → {result.text}")
    print(f"    first token {timings.first_token_ms:.1f} ms, {tokens_per_s:,.0f} tokens/s\n")


def main() -> None:
    """Translates one sentence and back, one as a stream, one of another language, all at once."""
    with server() as address, Client(address) as client:
        print("One call:")
        german = client.generate(SENTENCES[0])
        show(SENTENCES[0], german)

        print("And back, by the model that has these languages:")
        back = client.generate(german.text, source_language="de", target_language="en")
        show(german.text, back)

        print(f"One call, streamed:\n  {STREAMED}\n  → ", end="", flush=True)
        for piece in client.stream(STREAMED):
            print(piece.text, end="", flush=True)
        print("\n")

        print("One call to another model, which reads Korean:")
        show(KOREAN, client.generate(KOREAN, model="ko-en"))

        print(f"{len(SENTENCES)} calls at once, which share the steps of the decoder:")
        began_s = time.perf_counter()
        results = list(client.generate_many(SENTENCES))
        elapsed_s = time.perf_counter() - began_s
        for source, result in zip(SENTENCES, results, strict=True):
            show(source, result)
        tokens = sum(result.generated_tokens for result in results)
        print(
            f"  {tokens} tokens in {1e3 * elapsed_s:.0f} ms: {tokens / elapsed_s:,.0f} tokens/s\n"
        )
    print("These are small models, trained on short everyday sentences: expect mistakes.\n")
    print("The server has stopped. To keep one running on localhost:50051: make serve")
    print('Then, in another terminal: build/serve/bin/seqserve generate "I am learning German."')


if __name__ == "__main__":
    try:
        main()
    except SeqserveError as error:
        raise SystemExit(f"demo: {error}") from None
