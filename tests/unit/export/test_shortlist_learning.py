import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import tokenizers
from tests.tiny import SENTENCES
from tests.unit.export.conftest import opened
from tokenizers.models import WordLevel

from seqserve.errors import OptionError, SeqserveError
from seqserve_export.options import ShortlistOptions
from seqserve_export.shortlist import ShortlistError
from seqserve_export.shortlist_learning import learn_shortlist, make_shortlist
from seqserve_server.artifact.files import digest_of
from seqserve_server.artifact.manifest import Manifest
from seqserve_server.artifact.records import SelfTest
from seqserve_server.contract.errors import ArtifactError
from seqserve_server.contract.limits import Provider
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.engine.loading import run_self_test
from seqserve_server.engine.local_engine import LocalEngine
from seqserve_server.engine.runtime import Runtime
from seqserve_server.text.tokenizer import Tokenizer


@pytest.fixture
def model(tiny_artifact: Path, tmp_path: Path) -> Path:
    """The folder of a model with one version, which has a self-test."""
    folder = tmp_path / "models" / "tiny"
    shutil.copytree(tiny_artifact, folder / "1")
    with LocalEngine(folder / "1", slots=1) as offline:
        [target] = offline([SENTENCES[0]])
    manifest = Manifest.load(folder / "1")
    replace(manifest, self_test=SelfTest(source=SENTENCES[0], target=target)).write(folder / "1")
    return folder


@pytest.fixture
def options(model: Path, tmp_path: Path) -> ShortlistOptions:
    source, target = tmp_path / "text.en", tmp_path / "text.de"
    source.write_text("\n".join(SENTENCES) + "\n")
    target.write_text("\n".join(map(str.upper, SENTENCES)) + "\n")
    return ShortlistOptions(
        artifact=model / "1", source=source, target=target, frequent=5, best=3, sentences=20
    )


def test_model_with_a_vocabulary_for_each_side_is_refused(options: ShortlistOptions) -> None:
    words = tokenizers.Tokenizer(WordLevel({"<pad>": 0, "</s>": 1, "<unk>": 2}, "<unk>"))
    with pytest.raises(OptionError, match="a vocabulary for each side takes no shortlist"):
        learn_shortlist(Tokenizer(words, source_size=3), [], options)


def versions(model: Path) -> list[str]:
    return sorted(entry.name for entry in model.iterdir())


@pytest.mark.slow
def test_a_version_with_a_shortlist_chooses_among_few_tokens(
    model: Path, options: ShortlistOptions
) -> None:
    folder = make_shortlist(options)
    assert folder.name == "2"
    assert versions(model) == ["1", "2"]
    manifest = Manifest.load(folder)
    record = manifest.shortlist
    assert manifest.version == 2
    assert record is not None
    assert record.verification is not None
    # The end token, the unknown one, and translations of the token itself and of three others.
    assert record.frequent <= 5 + 2
    assert record.best == 3 + 1
    assert record.verification.sentences == 20
    assert record.verification.chrf_with is not None
    runtime = opened(folder)
    assert runtime.shortlist is not None
    with LocalEngine(folder, slots=4) as offline:
        run_self_test(runtime, offline.tokenizer)
        sources = [offline.encode(sentence) for sentence in SENTENCES[:9]]
        listed, free = (
            offline.decode(sources, DecodingOptions(max_decoding_length=9, shortlist=one))
            for one in (True, False)
        )
    size = manifest.architecture.vocabulary_size
    for source, one, other in zip(sources, listed, free, strict=True):
        candidates = set(runtime.shortlist.candidates(source, (), size).tolist())
        assert set(one.best.token_ids) <= candidates
        assert not set(other.best.token_ids) <= candidates
    with LocalEngine(model / "1", slots=4) as offline:
        assert offline.decode(sources, DecodingOptions(max_decoding_length=9)) == free


@pytest.mark.slow
def test_a_shortlist_that_makes_translations_worse_is_not_written(
    model: Path, options: ShortlistOptions, tmp_path: Path
) -> None:
    data = tmp_path / "held-out.tsv"
    with LocalEngine(model / "1", slots=8) as offline:
        said = zip(SENTENCES, offline(SENTENCES), strict=True)
        data.write_text("".join(f"{source}\t{target}\n" for source, target in said if target))
    with pytest.raises(ShortlistError, match=r"falls from 100\.0 to .* raise --best"):
        make_shortlist(replace(options, data=data))
    assert versions(model) == ["1"]


@pytest.mark.parametrize(
    ("side", "content", "problem"),
    [
        ("target", b"one\n", r"--target: .* has 1 lines, .* has 180; each line"),
        ("source", b"\xff\n" * 180, r"--source: .*text\.en is not UTF-8"),
    ],
)
def test_text_that_does_not_fit_is_refused(
    options: ShortlistOptions, side: str, content: bytes, problem: str
) -> None:
    getattr(options, side).write_bytes(content)
    with pytest.raises(OptionError, match=problem):
        make_shortlist(options)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"source": Path("nowhere.en")}, r"--source: nowhere.en: cannot be read"),
        ({"sentences": 500}, "all of them are for the proof; give more text, --data"),
        ({"model_version": 1}, "--model-version: .*1 exists already"),
        ({"artifact": Path("nowhere/7")}, "manifest.json: cannot be read"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused_by_name(
    model: Path, options: ShortlistOptions, changes: dict[str, object], problem: str
) -> None:
    with pytest.raises(SeqserveError, match=problem):
        make_shortlist(replace(options, **changes))  # type: ignore[arg-type]
    assert versions(model) == ["1"]


def test_a_damaged_shortlist_keeps_a_version_from_service(model: Path) -> None:
    folder = model / "1"
    path = folder / "shortlist.bin"
    path.write_bytes(b"seqlist1" + bytes(100))
    manifest = Manifest.load(folder)
    manifest = replace(manifest, files=manifest.files | {path.name: digest_of(path)})
    with pytest.raises(ArtifactError, match=r"shortlist\.bin: has 108 bytes; its header says 24"):
        Runtime(folder, manifest, Provider.CPU, threads=1)
