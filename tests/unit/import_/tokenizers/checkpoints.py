"""Writes the tokenizer files of checkpoints of each family, around vocabularies trained here."""

import functools
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import sentencepiece
import tokenizers
from tests.unit.import_.tokenizers import corpus


@functools.cache
def spm(kind: str = "unigram", size: int = 900, **options: Any) -> bytes:
    """Trains a SentencePiece model file."""
    file = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=corpus.plain_lines(2000),
        model_writer=file,
        vocab_size=size,
        model_type=kind,
        minloglevel=2,
        num_threads=1,
        hard_vocab_limit=False,
        **options,
    )
    return file.getvalue()


def t5_spm(**options: Any) -> bytes:
    """Trains one whose control tokens are those of T5."""
    return spm(pad_id=0, eos_id=1, unk_id=2, bos_id=-1, **options)


def pieces(file: bytes) -> list[str]:
    processor = sentencepiece.SentencePieceProcessor(model_proto=file)
    return [processor.id_to_piece(id_) for id_ in range(len(processor))]


def write(folder: Path, **files: object) -> Path:
    """Writes files whose names are given with ``_`` in place of the dot before the ending."""
    folder.mkdir(exist_ok=True, parents=True)
    for name, content in files.items():
        path = folder / ".".join(name.rsplit("_", 1))
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        path.write_bytes(data)
    return folder


def fairseq(folder: Path, file: bytes, **files: object) -> Path:
    """Writes the files of NLLB, mBART and, with its vocab.json, M2M-100."""
    folder = write(folder, **files)
    (folder / "sentencepiece.bpe.model").write_bytes(file)
    return folder


def t5(folder: Path, file: bytes, **files: object) -> Path:
    """Writes the files of T5 or Pegasus."""
    return write(folder, spiece_model=file, **files)


def m2m100(folder: Path, file: bytes, without: int = 0) -> Path:
    """Writes M2M-100's files; the last ``without`` of every ten pieces have no id."""
    kept = [piece for at, piece in enumerate(pieces(file)[3:]) if at % 10 < 10 - without]
    tokens = ["<s>", "<pad>", "</s>", "<unk>", *kept]
    return fairseq(folder, file, vocab_json={token: id_ for id_, token in enumerate(tokens)})


def marian(folder: Path, *, languages: tuple[str, ...] = (), separate: bool = False) -> Path:
    """Writes Marian's files: two different models, and ids for nine of ten pieces of each."""
    source, target = spm(size=900), spm(size=600)
    known = [piece for at, piece in enumerate(pieces(source)[3:]) if at % 10 != 7]
    wanted = [piece for at, piece in enumerate(pieces(target)[3:]) if at % 10 != 4]
    # Pieces that only the target has, as its words are others.
    wanted += ["▁ziel", "ganzeigenes", "ꙮ", "eigenes"]
    tokens = ["</s>", "<unk>", *languages, *dict.fromkeys(known if separate else known + wanted)]
    files: dict[str, object] = {"vocab_json": _ids([*tokens, "<pad>"])}
    if separate:
        files["target_vocab_json"] = _ids(["</s>", "<unk>", *wanted, "<pad>"])
    return write(folder, source_spm=source, target_spm=target, **files)


def bart(
    folder: Path, special: Sequence[str] = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
) -> Path:
    """Writes BART's files, trained on the same texts; the special tokens come first."""
    trained = tokenizers.ByteLevelBPETokenizer()
    texts = corpus.plain_lines(300)
    trained.train_from_iterator(texts, 700, special_tokens=list(special), show_progress=False)
    folder.mkdir(exist_ok=True)
    trained.save_model(str(folder))
    return folder


def indicbart(folder: Path) -> int:
    """Writes ALBERT's SentencePiece with control tokens and tags behind it; counts the pieces."""
    symbols = "[CLS],[SEP],[MASK]"
    file = spm(pad_id=0, unk_id=1, bos_id=-1, eos_id=-1, control_symbols=symbols)
    size = len(pieces(file))
    names = {"bos_token": "[CLS]", "eos_token": "[SEP]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    names |= {"pad_token": "<pad>", "unk_token": "<unk>"}
    settings = {"tokenizer_class": "AlbertTokenizer", "do_lower_case": False, "keep_accents": True}
    added = {token: size + at for at, token in enumerate(["<s>", "</s>", "<2en>", "<2hi>"])}
    files = {"special_tokens_map_json": names, "added_tokens_json": added}
    write(folder, spiece_model=file, tokenizer_config_json=settings | names, **files)
    return size


def _ids(tokens: list[str]) -> dict[str, int]:
    return {token: id_ for id_, token in enumerate(tokens)}
