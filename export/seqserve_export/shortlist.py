"""Attaches a shortlist to an artifact, and measures what it costs."""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from seqserve.errors import SeqserveError
from seqserve_export.parity import HeldOut
from seqserve_model.evaluate import score
from seqserve_server.artifact.files import digest_of
from seqserve_server.artifact.manifest import Manifest
from seqserve_server.artifact.records import SelfTest, ShortlistRecord, ShortlistVerification
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.engine import shortlist as shortlist_file
from seqserve_server.engine.local_engine import LocalEngine
from seqserve_server.engine.shortlist import Shortlist

MAX_BLEU_LOSS, MAX_CHRF_LOSS = 0.2, 0.3


class ShortlistError(SeqserveError):
    """A shortlist costs too much quality."""


class NewShortlist(NamedTuple):
    """A shortlist that no artifact has yet."""

    shortlist: Shortlist
    origin: str
    """The data it was made of, for the manifest."""


def attach_shortlist(
    folder: Path, manifest: Manifest, new: NewShortlist, held_out: HeldOut
) -> ShortlistVerification:
    """Writes a shortlist into the folder of an artifact that is not served yet.

    Returns:
        How the sentences decode with it and without it; :func:`check_tolerance` takes it.
    """
    manifest, record = write_shortlist(folder, manifest, new.shortlist, new.origin)
    with LocalEngine(folder, threads=held_out.threads) as artifact:
        verification = _verified(artifact, new.shortlist, held_out)
        self_test = _self_test(artifact, manifest.self_test)
    record = replace(record, verification=verification)
    replace(manifest, shortlist=record, self_test=self_test).write(folder)
    report(verification)
    return verification


def write_shortlist(
    folder: Path, manifest: Manifest, shortlist: Shortlist, origin: str
) -> tuple[Manifest, ShortlistRecord]:
    """Writes the file and a record without proof; returns the new manifest and the record."""
    path = folder / shortlist_file.FILE
    shortlist.write(path)
    record = ShortlistRecord(
        frequent=len(shortlist.frequent),
        best=shortlist.max_translations,
        origin=origin,
        verification=None,
    )
    files = manifest.files | {path.name: digest_of(path)}
    manifest = replace(manifest, files=files, shortlist=record)
    manifest.write(folder)
    return manifest, record


def _verified(
    artifact: LocalEngine, shortlist: Shortlist, held_out: HeldOut
) -> ShortlistVerification:
    size = artifact.manifest.architecture.vocabulary_size
    max_length = held_out.max_decoding_length or artifact.manifest.limits.max_target_length
    sources = [artifact.encode(pair.source) for pair in held_out.pairs]
    count = sum(len(shortlist.candidates(source, (), size)) for source in sources)
    listed, free = (
        _translations(artifact, sources, max_length, shortlist=is_on) for is_on in (True, False)
    )
    references = [pair.target for pair in held_out.pairs]
    scores = [score(texts, references) for texts in (listed, free)] if all(references) else None
    return ShortlistVerification(
        data=held_out.name,
        sentences=len(sources),
        sentences_equal=sum(ours == theirs for ours, theirs in zip(listed, free, strict=True)),
        candidates=round(count / len(sources), 1),
        bleu_with=round(scores[0].bleu, 2) if scores else None,
        bleu_without=round(scores[1].bleu, 2) if scores else None,
        chrf_with=round(scores[0].chrf, 2) if scores else None,
        chrf_without=round(scores[1].chrf, 2) if scores else None,
    )


def _translations(
    artifact: LocalEngine, sources: list[list[int]], max_length: int, *, shortlist: bool
) -> list[str]:
    options = DecodingOptions(max_decoding_length=max_length, shortlist=shortlist)
    answers = artifact.decode(sources, options)
    return [artifact.tokenizer.decode(answer.best.token_ids) for answer in answers]


def _self_test(artifact: LocalEngine, before: SelfTest | None) -> SelfTest | None:
    """Decodes the sentence of the self-test again: servers decode it with the shortlist."""
    return before and SelfTest(source=before.source, target=artifact([before.source])[0])


def report(verification: ShortlistVerification) -> None:
    """Prints the results of the proof."""
    equal, count = verification.sentences_equal, verification.sentences
    print(
        f"with the shortlist    {verification.candidates} tokens to choose from, on average;"
        f" {equal} of {count} sentences are equal to those without"
    )
    if verification.bleu_with is not None:
        print(f"BLEU without, with    {verification.bleu_without}, {verification.bleu_with}")
        print(f"chrF without, with    {verification.chrf_without}, {verification.chrf_with}")


def check_tolerance(verification: ShortlistVerification) -> None:
    """Refuses a shortlist that makes translations worse.

    Raises:
        ShortlistError: It does; the message names the score.
    """
    for name, before, after, limit in (
        ("BLEU", verification.bleu_without, verification.bleu_with, MAX_BLEU_LOSS),
        ("chrF", verification.chrf_without, verification.chrf_with, MAX_CHRF_LOSS),
    ):
        if before is not None and after is not None and before - after > limit:
            raise ShortlistError(
                f"{name} falls from {before} to {after} with the shortlist, by at most {limit} is"
                " allowed; raise --best or --frequent, or take more text; nothing was written"
            )
