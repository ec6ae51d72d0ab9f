"""Imported models of CTranslate2 give what CTranslate2 itself makes of the same files."""

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

import ctranslate2
import pytest
import sentencepiece
import torch
from tests import ctranslate2_files, ctranslate2_models
from tests.checkpoints import TOKENS
from torch.nn.utils.rnn import pad_sequence

from seqserve_import.command import main as import_main
from seqserve_import.loading import Loaded, load, open_checkpoint
from seqserve_model.decoding import greedy_in_batches
from seqserve_server import Offline
from seqserve_server.artifact.manifest import Manifest

SENTENCES, LONGEST = 200, 16
SEEDS = {"marian": 8}
"""Others than 13. Their models have no rows without a token, which CTranslate2 would generate."""
MAX_DIFFERENT = 1
"""Sentences of which two tokens are equally probable, to the rounding."""

Write = Callable[[Path], object]
opennmt = ctranslate2_models.write_opennmt
LAYOUTS: dict[str, Write] = {
    **{
        family: partial(ctranslate2_models.write, family, seed=SEEDS.get(family, 13))
        for family in ctranslate2_models.LOADERS
        if family != "mbart25"
    },
    "Marian": partial(ctranslate2_models.write_marian, norm="post"),
    "Marian, norms before": partial(ctranslate2_models.write_marian, norm="pre"),
    "OpenNMT-py": opennmt,
    "OpenNMT-py, relative positions": partial(opennmt, max_relative_positions=5),
    "OpenNMT-py, narrow heads": partial(opennmt, max_relative_positions=3, heads=8),
    "OpenNMT-py, gelu, no biases": partial(opennmt, pos_ffn_activation_fn="gelu", bias=False),
    "OpenNMT-py, silu": partial(opennmt, pos_ffn_activation_fn="silu", dec_layers=2),
}

pytestmark = pytest.mark.parity


class Peers:
    """A model in CTranslate2 and as imported, with the same random sentences."""

    def __init__(self, folder: Path) -> None:
        torch.set_num_threads(1)
        self.ours: Loaded = load(open_checkpoint(folder))
        self.theirs = ctranslate2.Translator(str(folder), compute_type="float32")
        draw = random.Random(5)
        tokenizer = self.ours.tokenizer
        usable = [token for token in range(9, TOKENS - 1) if token not in self.ours.suppressed]
        rows = (draw.choices(usable, k=draw.randint(1, 12)) for _ in range(SENTENCES))
        self.texts = [text for text in map(tokenizer.decode, rows) if text]
        self.sources = tokenizer.encode_batch(self.texts)
        self.words = [tokenizer.source.tokens(source) for source in self.sources]
        if open_checkpoint(folder).config.flag("add_source_eos", False):
            self.words = [row[:-1] for row in self.words]

    def log_probs(self, targets: list[list[int]]) -> list[list[float]]:
        """Scores a target of each source and its end, by torch."""
        config = self.ours.model.config

        def padded(rows: list[list[int]]) -> torch.Tensor:
            tensors = [torch.tensor(row) for row in rows]
            return pad_sequence(tensors, batch_first=True, padding_value=config.pad_id)

        lengths = torch.tensor([len(source) for source in self.sources])
        forced = padded([[config.bos_id, *target] for target in targets])
        wanted = padded([[*target, config.eos_id] for target in targets])
        with torch.inference_mode():
            logits = self.ours.model(padded(self.sources), lengths, forced)
        found = logits.log_softmax(-1).gather(-1, wanted[..., None])[..., 0].tolist()
        return [row[: len(target) + 1] for row, target in zip(found, targets, strict=True)]


@pytest.fixture(scope="module", params=LAYOUTS)
def peers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Peers:
    folder = tmp_path_factory.mktemp("model")
    LAYOUTS[request.param](folder)
    return Peers(folder)


def assert_scores_are_equal(peers: Peers) -> None:
    tokenizer = peers.ours.tokenizer
    # The target of another sentence, so that most of its tokens are improbable.
    targets = [ids[:-1] for ids in map(tokenizer.encode_target, peers.texts[1:] + peers.texts[:1])]
    words = [tokenizer.target.tokens(target) for target in targets]
    scored = peers.theirs.score_batch(peers.words, words, max_input_length=0)
    ours = peers.log_probs(targets)
    for row, theirs in zip(ours, scored, strict=True):
        assert row == pytest.approx(theirs.log_probs, abs=2e-4)
    assert len({round(row[0], 5) for row in ours}) > SENTENCES / 4, "sources do not matter"


def test_scores_are_equal(peers: Peers) -> None:
    assert_scores_are_equal(peers)


def test_greedy_search_writes_the_same_tokens(peers: Peers) -> None:
    ours = greedy_in_batches(peers.ours.model, peers.sources, LONGEST, 32)
    theirs = peers.theirs.translate_batch(
        peers.words,
        beam_size=1,
        min_decoding_length=0,
        max_decoding_length=LONGEST,
        max_input_length=0,
    )
    written = [peers.ours.tokenizer.target.tokens(ids) for ids in ours]
    expected = [answer.hypotheses[0] for answer in theirs]
    different = sum(one != other for one, other in zip(written, expected, strict=True))
    assert different <= MAX_DIFFERENT
    assert len({*map(tuple, written)}) > 4, "targets do not vary"


@pytest.mark.parametrize(
    "quantization", ["float16", "bfloat16", "int16", "int8", "int8_float16", "int8_bfloat16"]
)
def test_rounded_weights_are_read_as_what_they_stand_for(tmp_path: Path, quantization: str) -> None:
    opennmt(tmp_path / "model", quantization=quantization)
    assert_scores_are_equal(Peers(tmp_path / "model"))


def test_a_package_of_argos_writes_the_words_of_argos(tmp_path: Path) -> None:
    opennmt(tmp_path / "model", quantization="int8", max_relative_positions=4)
    package = ctranslate2_files.write_package(tmp_path, tmp_path / "model", "en", "de")
    models = tmp_path / "models"
    arguments = [str(package), "--model-repository", str(models), "--sentences", "20"]
    assert import_main(arguments) == 0
    pieces = sentencepiece.SentencePieceProcessor(str(tmp_path / "model" / "sentencepiece.model"))
    theirs = ctranslate2.Translator(str(tmp_path / "model"), compute_type="float32")
    peers = Peers(tmp_path / "model")
    # As argostranslate.translate does it.
    answers = theirs.translate_batch(
        [pieces.encode(text, out_type=str) for text in peers.texts],
        beam_size=4,
        length_penalty=0.2,
        max_decoding_length=LONGEST,
    )
    expected = [pieces.decode_pieces(answer.hypotheses[0]) for answer in answers]
    manifest = Manifest.load(models / "en-de" / "1")
    with Offline(models / "en-de" / "1", workers=1) as offline:
        results = offline.generate(peers.texts, max_decoding_length=LONGEST)
    written = [result.text for result in results]
    different = sum(one != other for one, other in zip(written, expected, strict=True))
    assert different <= 2
    assert manifest.template
    assert manifest.template.source_languages == {"en": ""}
