import bz2
import gzip
import os
import threading
import zipfile
from pathlib import Path

import pytest

from seqserve.errors import OptionError
from seqserve_model.data import Pair, normalise, read_pairs, write_pairs
from seqserve_model.evaluate import open_translator
from seqserve_model.options import EvaluateOptions
from seqserve_model.parallel_text import read_split
from seqserve_model.prepare import main, prepare, read_manythings, read_tatoeba
from seqserve_model.recipe import Recipe
from seqserve_model.teacher import nearest
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.engine.local_engine import LocalEngine

CREDIT = "CC-BY 2.0 (France) Attribution: tatoeba.org #1 (CM) & #2 (Pfirsichbaeumchen)"


def test_rows_are_cleaned_and_counted(tmp_path: Path) -> None:
    rows = [
        ("Hi.", "Hallo!", CREDIT),
        (" Hi. ", "Hallo!", "again"),
        ("A\u0308  b", "x", ""),
        ("", "y", ""),
        ("z", " ", ""),
    ]
    out = tmp_path / "sub" / "a.tsv"
    counts = prepare(rows, out)
    assert out.read_text(encoding="utf-8") == f"Hi.\tHallo!\t{CREDIT}\nÄ b\tx\n"
    assert (counts.read, counts.empty, counts.duplicates, counts.written) == (5, 2, 1, 2)
    assert str(counts) == "5 pairs read, 2 empty and 1 repeated left out, 2 written"
    assert [path.name for path in out.parent.iterdir()] == ["a.tsv"]


def test_packed_files_are_equal_for_equal_rows(tmp_path: Path) -> None:
    for name in ("a.tsv.gz", "b.tsv.gz"):
        prepare([("a", "b", "")], tmp_path / name)
    packed = (tmp_path / "a.tsv.gz").read_bytes()
    assert packed == (tmp_path / "b.tsv.gz").read_bytes()
    assert gzip.decompress(packed) == b"a\tb\n"


def test_nothing_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="nothing to write"):
        prepare([], tmp_path / "a.tsv")
    assert not list(tmp_path.iterdir())


def test_a_pipe_is_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "a.tsv"
    os.mkfifo(pipe)
    with pytest.raises(OptionError, match=r"--out: .*a\.tsv: is not a regular file"):
        prepare([("a", "b", "")], pipe)
    assert pipe.is_fifo()


def test_manythings_text_and_zip_read_alike(tmp_path: Path) -> None:
    content = f"Hi.\tHallo!\t{CREDIT}\r\nOld\tAlt\nbad\xff\n".encode("latin-1")
    (tmp_path / "deu.txt").write_bytes(content)
    with zipfile.ZipFile(tmp_path / "deu-eng.zip", "w") as archive:
        archive.writestr("_about.txt", "licence")
        archive.writestr("deu.txt", content)
    rows = [("Hi.", "Hallo!", CREDIT), ("Old", "Alt", ""), ("bad\ufffd", "", "")]
    assert list(read_manythings(tmp_path / "deu.txt")) == rows
    assert list(read_manythings(tmp_path / "deu-eng.zip")) == rows


def training(recipe: Path) -> list[Pair]:
    return read_split(Recipe.load(recipe).data, lambda line: None).training


@pytest.mark.parametrize("members", [[], ["a.txt", "b.txt"]])
def test_a_zip_must_hold_one_text(tmp_path: Path, members: list[str]) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for member in members:
            archive.writestr(member, "a\tb")
    with pytest.raises(OptionError, match=f"holds {len(members)} texts"):
        list(read_manythings(tmp_path / "a.zip"))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.zip", b"PK\3\4 cut", r"a\.zip: is not a zip archive, or damaged; download it again"),
        ("a.txt", b"one\teins\ntwo\0\tzwei\n", r"a\.txt: is not text: line 2 has a byte of zero"),
        ("a.txt", None, r"a\.txt: cannot be read"),
    ],
)
def test_what_is_no_text_is_refused(
    tmp_path: Path, name: str, content: bytes | None, message: str
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(OptionError, match=message):
        list(read_manythings(path))


@pytest.fixture
def tatoeba(tmp_path: Path) -> tuple[Path, Path]:
    sentences, links = tmp_path / "sentences.tsv.bz2", tmp_path / "links.tsv"
    sentences.write_bytes(
        bz2.compress(
            b"1\teng\tHi.\tCM\t2010\n2\tdeu\tHallo!\tPfirsichbaeumchen\n"
            b"3\tfra\tSalut !\n4\teng\tBye.\n5\tdeu\tTsch\xc3\xbcss!\t\\N\n"
        )
    )
    links.write_text("1\t2\n2\t1\n1\t3\n4\t5\n9\t2\n")
    return sentences, links


def test_tatoeba_links_join_sentences_of_two_languages(tatoeba: tuple[Path, Path]) -> None:
    rows = list(read_tatoeba(*tatoeba, "eng", "deu"))
    credit = "CC-BY 2.0 (France) Attribution: tatoeba.org #4 & #5"
    assert rows == [("Hi.", "Hallo!", CREDIT), ("Bye.", "Tschüss!", credit)]
    assert [row[:2] for row in read_tatoeba(*tatoeba, "deu", "eng")] == [("Hallo!", "Hi.")]


def test_sentences_of_two_languages_are_joined_files_and_may_come_by_pipe(tmp_path: Path) -> None:
    """As bzip2 files of one language each, one behind the other, and as a shell hands them on."""
    pipe, links = tmp_path / "sentences", tmp_path / "eng-deu_links.tsv"
    os.mkfifo(pipe)
    joined = bz2.compress(b"1\teng\tHi.\n") + bz2.compress(b"2\tdeu\tHallo!\n")
    writer = threading.Thread(target=pipe.write_bytes, args=(joined,), daemon=True)
    writer.start()
    links.write_text("1\t2\n")
    rows = list(read_tatoeba(pipe, links, "eng", "deu"))
    writer.join()
    assert [row[:2] for row in rows] == [("Hi.", "Hallo!")]


def test_an_unknown_language_is_named(tatoeba: tuple[Path, Path]) -> None:
    with pytest.raises(OptionError, match="no sentence in 'de'"):
        list(read_tatoeba(*tatoeba, "eng", "de"))


def test_the_command_writes_what_training_reads(
    tmp_path: Path, tatoeba: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.tsv.gz"
    sentences, links = map(str, tatoeba)
    assert main(["--sentences", sentences, "--links", links, "--out", str(out)]) == 0
    assert "2 written" in capsys.readouterr().err
    assert [pair.source for pair in read_pairs(out).pairs] == ["Hi.", "Bye."]
    assert main(["--numbers", "50", "--out", str(out)]) == 0
    assert len(read_pairs(out).pairs) == 50


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    pairs = [Pair(f"the {n} cat", f"die {n} Katze") for n in range(20)]
    write_pairs(tmp_path / "pairs.tsv", pairs)
    write_pairs(tmp_path / "more.tsv", [Pair(f"{n} dogs", f"{n} Hunde") for n in range(6)])
    path = tmp_path / "recipe.toml"
    path.write_text(
        f"""
        [data]
        path = "{tmp_path / "pairs.tsv"}"
        validation_pairs = 4
        test_pairs = 4
        augmented_path = "{tmp_path / "more.tsv"}"
        """
    )
    return path


def test_the_pairs_of_a_recipe_are_written_without_those_held_out(
    tmp_path: Path, recipe: Path
) -> None:
    out = tmp_path / "out.tsv"
    assert main(["--recipe", str(recipe), "--out", str(out)]) == 0
    written = read_pairs(out).pairs
    assert written == training(recipe)
    assert len(written) == 12 + 6


def test_a_teacher_translates_each_source_once(
    tmp_path: Path, recipe: Path, tiny_artifact: Path
) -> None:
    out = tmp_path / "out.tsv"
    search = ["--beam-size", "3", "--length-penalty", "1"]
    command = ["--recipe", str(recipe), "--teacher", str(tiny_artifact), "--out", str(out)]
    assert main([*command, *search]) == 0
    sources = [pair.source for pair in training(recipe)]
    options = EvaluateOptions(path=tiny_artifact, beam_size=3, length_penalty=1.0)
    with open_translator(options) as translate:
        translations = translate(sources)
    pairs = map(Pair, sources, map(normalise, translations))
    assert read_pairs(out).pairs == list(dict.fromkeys(pair for pair in pairs if pair.target))


def test_of_a_beam_the_hypothesis_nearest_to_a_target_is_taken(
    tmp_path: Path, recipe: Path, tiny_artifact: Path
) -> None:
    out = tmp_path / "out.tsv"
    command = ["--recipe", str(recipe), "--teacher", str(tiny_artifact), "--out", str(out)]
    assert main([*command, "--beam-size", "3", "--nearest", "0"]) == 0
    written, chosen = dict(read_pairs(out).pairs), set[int]()
    with LocalEngine(tiny_artifact) as engine:
        limit = engine.manifest.limits.max_target_length
        options = DecodingOptions(max_decoding_length=limit, beam_size=3, num_hypotheses=3)
        for source, target in training(recipe):
            (answer,) = engine.decode([engine.encode(source)], options)
            texts = [engine.tokenizer.decode(each.token_ids) for each in answer.hypotheses]
            assert written.get(source, "") == normalise(nearest(texts, [target], 0))
            chosen.add(texts.index(nearest(texts, [target], 0)))
    assert len(chosen) > 1, "the best hypothesis is always the nearest"
    assert main([*command, "--beam-size", "3", "--nearest", "100"]) == 0
    assert read_pairs(out).pairs == training(recipe)


def test_a_target_takes_the_place_of_hypotheses_that_are_far_from_it() -> None:
    hypotheses, targets = ["Der Hund schläft.", "Die Katze schlief."], ["Die Katze schläft.", "x"]
    assert nearest(hypotheses, targets, 60) == "Die Katze schlief."
    assert nearest(hypotheses, targets, 95) == "Die Katze schläft."


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name archives"),
        (["--recipe", "RECIPE", "--teacher", "x", "--nearest", "60"], "several hypotheses"),
        (["--recipe", "a.toml", "--numbers", "3"], "name archives"),
        (["--recipe", "none.toml"], "none.toml: cannot be read"),
        (["--teacher", "runs/a", "--numbers", "3"], "--teacher: needs --recipe, whose sources"),
        (["--recipe", "RECIPE", "--teacher", "x", "--beam-size", "3"], "translates with greedy"),
        (["--recipe", "RECIPE", "--teacher", "x"], "neither a training run nor an artifact"),
        (["a.txt", "--numbers", "3"], "name archives"),
        (["--links", "a"], "need each other"),
        (["--numbers", "0"], "less than 1"),
        (["none.txt"], "cannot be read"),
    ],
)
def test_wrong_arguments(tmp_path: Path, recipe: Path, arguments: list[str], message: str) -> None:
    named = [str(recipe) if word == "RECIPE" else word for word in arguments]
    with pytest.raises(OptionError, match=message):
        main([*named, "--out", str(tmp_path / "o.tsv")])
