"""The plainest server that people write: FastAPI and CTranslate2, one call for each request.

    python -m bench.drivers.plain_server PACKAGE EOS_ID CORES BEAM_SIZE PORT

It takes what ``/translate`` of LibreTranslate takes, and runs in LibreTranslate's environment.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from bench.drivers.libretranslate import MAX_DECODING_LENGTH
from bench.drivers.numbered_tokenizer import NumberedTokenizer


def main() -> None:
    """Serves until the process is ended."""
    import ctranslate2
    import uvicorn
    from fastapi import FastAPI
    from pydantic import create_model

    package = Path(sys.argv[1])
    eos_id, cores, beam_size, port = map(int, sys.argv[2:])
    tokenizer = NumberedTokenizer(package / "tokenizer.json", eos_id)
    translator = ctranslate2.Translator(
        str(package / "model"), inter_threads=cores, intra_threads=1
    )
    app = FastAPI()
    body = create_model("Body", q=(str | list[str], ...))

    # Not async: FastAPI runs it in a thread, and CTranslate2 releases the interpreter lock.
    def translate(request: Any) -> dict[str, Any]:
        is_array = isinstance(request.q, list)
        texts = request.q if is_array else [request.q]
        sources = [tokenizer.encode(text) for text in texts]
        results = translator.translate_batch(
            sources,
            beam_size=beam_size,
            max_batch_size=32,
            max_decoding_length=MAX_DECODING_LENGTH,
        )
        answers = [tokenizer.decode(result.hypotheses[0]) for result in results]
        return {"translatedText": answers if is_array else answers[0]}

    translate.__annotations__["request"] = body
    app.post("/translate")(translate)

    @app.on_event("startup")  # type: ignore[untyped-decorator]
    def announce() -> None:
        print(f"plain server ready on 127.0.0.1:{port}", flush=True)

    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning")


if __name__ == "__main__":
    main()
