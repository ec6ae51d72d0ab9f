"""Every method for generation and scores, then lines of standard input, many at once.

python clients/examples/python/calls.py [TARGET] < lines.txt
"""

import asyncio
import sys

from seqserve import AsyncClient, Client, InvalidArgument, SeqserveError


def call_each(target: str) -> None:
    """Calls the server at ``target`` by one method after the other."""
    with Client(target, timeout_s=10.0) as client:
        for model in client.models():
            print(f"{model.name}/{model.version} is {model.state.value}: {model.description}")

        result = client.generate("The coffee tastes good.")
        print(f"{result.text}  (score {result.score:.2f}, {result.timings.total_ms:.1f} ms)")

        best = client.generate("The weather is nice today.", beam_size=4, num_hypotheses=3)
        for hypothesis in best.hypotheses:
            print(f"{hypothesis.normalized_score:.2f}  {hypothesis.text}")

        sample = client.generate("The weather is nice today.", temperature=0.8, top_p=0.9, seed=7)
        print(f"{sample.text}  (one sample)")

        for piece in client.stream("We saw a good film."):
            print(piece.text, end="", flush=True)
        print()

        scored = client.score("I am learning German.", "Ich lerne Deutsch.")
        for token, score in zip(scored.tokens, scored.token_scores, strict=True):
            print(f"{score:6.2f}  {token}")

        attention = client.attention("I am learning German.", "Ich lerne Deutsch.")
        for token, row in zip(attention.target_tokens, attention.cross.mean(), strict=True):
            print(f"{token} attended to {attention.source_tokens[row.index(max(row))]}")

        try:
            client.generate("The weather is nice today.", max_decoding_length=0)
        except InvalidArgument as error:
            print(f"refused, as it should be: {error}")


async def call_many(target: str) -> None:
    """Prints an answer for every non-empty line of standard input, in order.

    The server decodes them together; the client holds at most a few hundred at a time, so the input
    may be of any length.
    """
    sources = (line.strip() for line in sys.stdin if line.strip())
    async with AsyncClient(target) as client:
        async for result in client.generate_many(sources, concurrency=64):
            print(result.text, flush=True)


if __name__ == "__main__":
    address = sys.argv[1] if len(sys.argv) > 1 else "localhost:50051"
    try:
        call_each(address)
        asyncio.run(call_many(address))
    except SeqserveError as error:
        # The base class of all errors of seqserve.
        raise SystemExit(str(error)) from None
