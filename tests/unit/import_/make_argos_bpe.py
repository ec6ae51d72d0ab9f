"""Writes ``argos_bpe.json``: how Argos itself divides and joins texts by a ``bpe.model``.

    python -m venv build/argos && build/argos/bin/pip install sacremoses subword-nmt sentencepiece
    build/argos/bin/pip install --no-deps argostranslate==1.11.0
    build/argos/bin/python tests/unit/import_/make_argos_bpe.py

The merges are learned from ``bench/sentences.txt``, divided as Moses does.
"""

import io
import json
import tempfile
from pathlib import Path

from argostranslate.tokenizer import BPETokenizer
from sacremoses import MosesPunctNormalizer, MosesTokenizer
from subword_nmt.learn_bpe import learn_bpe

HERE = Path(__file__).parent
SENTENCES = HERE.parents[3] / "bench" / "sentences.txt"
MERGES, KEPT = 400, 40
CORNERS = [
    "He said, \"Don't go to Mr. Smith's house!\"",
    "It costs $5,300.50 (or 20 %).",
    "Wait... what? See e.g. the U.S. report, p. 7.",
    "A & B <c> [d] | e",
    "The 1990's: well-known “quotes” — and ‘more’…",
    "J. Smith lives in St. Gallen.",
    "Visit www.example.com/a_b, or mail a@b.org.",
    "Ünïcode naïve café, 3.14 and 10:30.",
    '"Yes," she said. "No."',
    "Dogs' tails",
]


def main() -> None:
    sentences = SENTENCES.read_text(encoding="utf-8").splitlines()
    normalizer, words = MosesPunctNormalizer("en"), MosesTokenizer("en")
    divided = (" ".join(words.tokenize(normalizer.normalize(text))) for text in CORNERS + sentences)
    codes = io.StringIO()
    learn_bpe(io.StringIO("\n".join(divided)), codes, MERGES, 2)
    with tempfile.NamedTemporaryFile("w", suffix=".model") as file:
        file.write(codes.getvalue())
        file.flush()
        argos = BPETokenizer(Path(file.name), "en", "en")
        rows = {text: argos.encode(text) for text in CORNERS + sentences}
        found = {
            "codes": codes.getvalue().splitlines(),
            "vocabulary": sorted({token for tokens in rows.values() for token in tokens}),
            "sentences": [[text, rows[text], argos.decode(rows[text])] for text in [*rows][:KEPT]],
        }
    text = json.dumps(found, ensure_ascii=False)
    (HERE / "argos_bpe.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
