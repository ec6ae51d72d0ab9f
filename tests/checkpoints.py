"""Small checkpoints of Hugging Face with random weights: ``python -m tests.checkpoints t5 FOLDER``.

The seed decides the weights and the corners: depth, heads, tied or separate tables, rows of the
vocabulary without a token.
"""

import argparse
import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import tokenizers
import torch
import transformers
from safetensors.torch import load_file, save_file
from tests.ctranslate2_files import pieces
from tokenizers import models, pre_tokenizers, processors
from torch import nn

TOKENS = 96
"""Tokens of a vocabulary."""
LANGUAGES = ["deu_Latn", "eng_Latn"]
LANGUAGES_OF = {
    "nllb": LANGUAGES,
    "m2m100": LANGUAGES,
    "madlad": ["<2de>", "<2fr>"],
    "mbart25": ["de_DE", "en_XX"],
}
"""Tokens 7 and 8 of some families."""
BYT5_EXTRA = 25
"""Tokens of ByT5 behind its bytes; published models have 125."""
_UNKNOWN = 3


class _Shape:
    """What a seed draws; every value is one that real checkpoints differ in."""

    def __init__(self, seed: int) -> None:
        draw = random.Random(seed)
        self.heads = draw.choice((2, 3, 5))
        self.width = 8 * self.heads * draw.choice((1, 2))
        self.head_size = draw.choice((8, 16))
        self.feed_forward = draw.choice((24, 40))
        self.encoder_layers, self.decoder_layers = draw.sample((1, 2, 3), 2)
        self.unused_rows = draw.choice((0, 5, 32))
        self.is_tied = draw.random() < 0.5
        self.vocabulary_size = TOKENS + self.unused_rows
        self.source_tokens = TOKENS + draw.choice((0, 24))


def _made(kind: str, values: dict[str, Any], ending: str = "ForConditionalGeneration") -> Any:
    """Makes a network of transformers, such as a ``T5ForConditionalGeneration``."""
    config = getattr(transformers, f"{kind}Config")(**values)
    return getattr(transformers, f"{kind}{ending}")(config)


def _bart_like(shape: _Shape, activation: str, **changes: Any) -> dict[str, Any]:
    values = {
        "vocab_size": shape.vocabulary_size,
        "d_model": shape.width,
        "encoder_layers": shape.encoder_layers,
        "decoder_layers": shape.decoder_layers,
        "encoder_attention_heads": shape.heads,
        "decoder_attention_heads": shape.heads,
        "encoder_ffn_dim": shape.feed_forward,
        "decoder_ffn_dim": shape.feed_forward,
        "max_position_embeddings": 24,
        "activation_function": activation,
        "scale_embedding": True,
        "forced_eos_token_id": None,
        "tie_word_embeddings": shape.is_tied,
        "pad_token_id": 1,
        "bos_token_id": 0,
        "eos_token_id": 2,
        "decoder_start_token_id": 2,
    }
    return values | changes


def _marian(shape: _Shape, **others: Any) -> Any:
    last = TOKENS - 1
    ids = {"pad_token_id": last, "decoder_start_token_id": last, "bad_words_ids": [[last]]}
    ids |= {"eos_token_id": 0, "bos_token_id": None}
    return _made("Marian", _bart_like(shape, "swish", **others | ids), "MTModel")


def _two_vocabularies(shape: _Shape) -> Any:
    """Makes a Marian whose sides differ: in their vocabularies, and in their heads."""
    sizes = {"vocab_size": shape.source_tokens, "decoder_vocab_size": shape.vocabulary_size}
    others = {"share_encoder_decoder_embeddings": False, "decoder_attention_heads": 1}
    return _marian(shape, **sizes, **others)


def _m2m100(shape: _Shape) -> Any:
    return _made("M2M100", _bart_like(shape, "relu"))


def _nllb(shape: _Shape) -> Any:
    model = _m2m100(shape)
    model.generation_config.forced_bos_token_id = 7
    return model


def _bart(shape: _Shape) -> Any:
    return _made("Bart", _bart_like(shape, "gelu", scale_embedding=False))


def _uneven(shape: _Shape) -> Any:
    """Makes a BART whose decoder has other heads than its encoder, and some of an odd size."""
    sizes = {"decoder_attention_heads": 4, "decoder_ffn_dim": shape.feed_forward + 7}
    return _made("Bart", _bart_like(shape, "gelu", **sizes))


def _mbart(shape: _Shape, **changes: Any) -> Any:
    return _made("MBart", _bart_like(shape, "gelu", **changes))


def _mbart25(shape: _Shape) -> Any:
    """Makes an mBART whose targets start with their language, German if none is named."""
    return _mbart(shape, decoder_start_token_id=7)


def _pegasus(shape: _Shape) -> Any:
    return _made("Pegasus", _bart_like(shape, "relu", bos_token_id=None, **_T5_IDS))


_T5_IDS = {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}


def _t5(shape: _Shape, **changes: Any) -> Any:
    values = {
        "vocab_size": shape.vocabulary_size,
        "d_model": shape.width,
        "d_kv": shape.head_size,
        "d_ff": shape.feed_forward,
        "num_layers": shape.encoder_layers,
        "num_decoder_layers": shape.decoder_layers,
        "num_heads": shape.heads,
        "relative_attention_num_buckets": 8,
        "relative_attention_max_distance": 10,
        "feed_forward_proj": "relu",
        **_T5_IDS,
    }
    return _made("T5", values | changes)


def _flan(shape: _Shape, **changes: Any) -> Any:
    model = _t5(shape, feed_forward_proj="gated-gelu", tie_word_embeddings=False, **changes)
    model.lm_head.weight = nn.Parameter(torch.zeros_like(model.shared.weight))
    return model


def _mt5(shape: _Shape) -> Any:
    like = _flan(shape, d_kv=shape.head_size - 2)
    model = _made("MT5", like.config.to_dict())
    model.lm_head.weight = like.lm_head.weight
    return model


def _umt5(shape: _Shape) -> Any:
    return _made("UMT5", _t5(shape, feed_forward_proj="gated-gelu").config.to_dict())


def _byt5(shape: _Shape) -> Any:
    return _flan(shape, vocab_size=3 + 256 + BYT5_EXTRA + shape.unused_rows)


FAMILIES: dict[str, Callable[[_Shape], Any]] = {
    "marian": _marian,
    "marian-two-vocabularies": _two_vocabularies,
    "m2m100": _m2m100,
    "nllb": _nllb,
    "t5": _t5,
    "flan": _flan,
    "mt5": _mt5,
    "umt5": _umt5,
    "byt5": _byt5,
    "madlad": _flan,
    "bart": _bart,
    "bart-uneven": _uneven,
    "mbart": _mbart,
    "mbart25": _mbart25,
    "pegasus": _pegasus,
}


def make(family: str, seed: int = 0) -> Any:
    """Makes a model whose greedy targets vary, in evaluation mode."""
    torch.manual_seed(seed)
    model = FAMILIES[family](_Shape(seed)).eval()
    model.family = family
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embed_positions" in name and model.config.model_type in ("marian", "pegasus"):
                continue  # sinusoids
            noise = torch.randn(parameter.shape, generator=generator)
            is_matrix = parameter.dim() > 1
            size = parameter.size(-1) ** -0.5
            if name.endswith(_CROSS_OUTPUTS):
                size *= 4.0  # so that targets depend on their sources
            parameter.copy_(noise * size if is_matrix else parameter + 0.3 * noise)
        # Else each token predicts itself for ever, because the output is tied to the input.
        _last_of(model, *_LAST_PROJECTIONS).mul_(6.0)
        last = _last_of(model, *_LAST_NORMS)
        last.copy_(torch.randn(last.shape, generator=generator))
        if family in ("t5", "umt5"):
            last *= model.config.d_model**0.5  # the network divides by as much
        model.get_output_embeddings().weight[model.config.eos_token_id] *= 1.5
        if model.config.model_type == "marian":
            model.final_logits_bias.normal_(std=0.3, generator=generator)
            # Marian starts from a vector of zeros.
            model.get_decoder().embed_tokens.weight[model.config.pad_token_id] = 0.0
    return model


_CROSS_OUTPUTS = ("encoder_attn.out_proj.weight", "EncDecAttention.o.weight")
_LAST_PROJECTIONS = ("fc2.weight", "DenseReluDense.wo.weight")
_LAST_NORMS = ("decoder.layer_norm.weight", "final_layer_norm.weight")


def _last_of(model: Any, *endings: str) -> torch.Tensor:
    """Finds the last weight of the decoder whose name ends like the first ending that is there."""
    names = [name for name, _ in model.named_parameters() if "decoder." in name]
    found = [[name for name in names if name.endswith(ending)] for ending in endings]
    return model.get_parameter(next(matching[-1] for matching in found if matching))  # type: ignore[no-any-return]


def save(model: Any, folder: Path) -> None:
    """Writes a checkpoint with a vocabulary of numbered words."""
    config = model.config
    model.save_pretrained(folder)
    if config.model_type in ("t5", "mt5", "umt5"):
        _write_as_t5_did(model, folder)
    if config.model_type == "marian":
        _edit(folder / "generation_config.json", bad_words_ids=[[config.pad_token_id]])
        _write_pieces(config, folder)
    elif model.family == "byt5":
        settings = {"tokenizer_class": "ByT5Tokenizer", "extra_ids": BYT5_EXTRA}
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    else:
        languages = LANGUAGES_OF.get(model.family, [])
        tokenizer(config, languages).save(str(folder / "tokenizer.json"))


def _write_as_t5_did(model: Any, folder: Path) -> None:
    """Restores what the checkpoints that people have hold, and this transformers leaves out."""
    is_tied = model.lm_head.weight is model.shared.weight
    _edit(folder / "config.json", tie_word_embeddings=is_tied, decoder_start_token_id=0)
    path = folder / "model.safetensors"
    weights = load_file(path)
    if not is_tied:
        weights["lm_head.weight"] = model.lm_head.weight.detach()
    if model.family == "madlad":
        weights["decoder.embed_tokens.weight"] = weights.pop("shared.weight")
    save_file(weights, path)


def _edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def word_ids(config: Any, languages: Sequence[str] = (), space: str = "") -> dict[str, int]:
    """Returns the ids of all words: that of ``t17`` is 17."""
    words = [f"{space}t{number}" for number in range(TOKENS)]
    words[config.pad_token_id], words[config.eos_token_id] = "<pad>", "</s>"
    words[_UNKNOWN] = "<unk>"
    words[7 : 7 + len(languages)] = languages
    if (begin := getattr(config, "bos_token_id", None)) is not None:
        words[begin] = "<s>"
    return {word: number for number, word in enumerate(words)}


def _write_pieces(config: Any, folder: Path) -> None:
    """Writes the vocabulary as Marian has it: the ids, and a SentencePiece model of each side.

    Targets with a vocabulary of their own are spelled ``z17``.
    """
    ids = word_ids(config, space="▁")
    targets = ids
    if not config.share_encoder_decoder_embeddings:
        targets = {word.replace("t", "z"): number for word, number in ids.items()}
        more = range(len(ids), config.vocab_size)
        ids |= {f"▁t{number}": number for number in more}
        (folder / "target_vocab.json").write_text(json.dumps(targets))
    (folder / "vocab.json").write_text(json.dumps(ids))
    for side, words in {"source": ids, "target": targets}.items():
        (folder / f"{side}.spm").write_bytes(pieces([*words]))


def tokenizer(config: Any, languages: Sequence[str] = ()) -> tokenizers.Tokenizer:
    """Makes a vocabulary of words that stand between spaces, and an end after each text."""
    ids = word_ids(config, languages)
    special = [word for word in ids if word.startswith("<") or word in languages]
    made = tokenizers.Tokenizer(models.WordLevel(ids, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.add_special_tokens(special)
    front = ["<s>"] if config.model_type == "bart" else []
    made.post_processor = processors.TemplateProcessing(
        single=[*front, "$A", "</s>"],
        special_tokens=[(token, ids[token]) for token in (*front, "</s>")],
    )
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("family", choices=FAMILIES)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    save(make(options.family, options.seed), options.folder)


if __name__ == "__main__":
    main()
