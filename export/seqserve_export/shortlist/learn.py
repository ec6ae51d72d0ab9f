"""Learns a shortlist from parallel text, and writes a version of the artifact that has it."""

import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

from seqserve.errors import OptionError
from seqserve_export.options import ShortlistOptions
from seqserve_export.parity import HeldOut
from seqserve_export.shortlist.attach import NewShortlist, attach_shortlist, check_tolerance
from seqserve_export.shortlist.translations import TokenPair, learn_translations
from seqserve_model.data import Pair, cannot_be_read, open_lines, read_pairs
from seqserve_server.artifact.files import atomic_folder
from seqserve_server.artifact.manifest import Manifest
from seqserve_server.engine.shortlist import Shortlist
from seqserve_server.text.tokenizer import Tokenizer


def make_shortlist(options: ShortlistOptions) -> Path:
    """Writes a version with a shortlist next to the artifact; returns its folder.

    Raises:
        ArtifactError: The artifact is not sound.
        OptionError: The text or the place do not fit.
        ShortlistError: Translations get worse by it; nothing was written.
    """
    manifest = Manifest.load(options.artifact)
    tokenizer = Tokenizer.of_artifact(options.artifact, manifest)
    place = _place(options)
    text, held_out = _text(options)
    shortlist = learn_shortlist(tokenizer, text, options)
    origin = f"{len(text)} pairs of {options.source.name} and {options.target.name}"
    manifest = replace(manifest, version=int(place.name))
    with atomic_folder(place) as folder:
        shutil.copytree(options.artifact, folder, dirs_exist_ok=True)
        check_tolerance(
            attach_shortlist(folder, manifest, NewShortlist(shortlist, origin), held_out)
        )
    return place


def _text(options: ShortlistOptions) -> tuple[list[Pair], HeldOut]:
    pairs = read_text(options.source, options.target)
    if options.data:
        held_out = read_pairs(options.data).pairs[: options.sentences]
    else:
        pairs, held_out = pairs[: -options.sentences], pairs[-options.sentences :]
    if not pairs:
        raise OptionError(
            f"--source: {options.source} has {len(held_out)} sentences, and all of them are for the"
            " proof; give more text, --data, or fewer --sentences"
        )
    name = (options.data or options.source).name
    return pairs[: options.pairs], HeldOut(pairs=held_out, name=name, threads=options.threads)


def learn_shortlist(
    tokenizer: Tokenizer, text: Sequence[Pair], options: ShortlistOptions
) -> Shortlist:
    """Learns which tokens are frequent in targets, and which translate which.

    Raises:
        OptionError: Sources and targets have different vocabularies.
    """
    if not tokenizer.is_joint:
        raise OptionError("a model with a vocabulary for each side takes no shortlist")
    encoded: list[TokenPair] = [
        (tokenizer.pieces(pair.source).ids, tokenizer.pieces(pair.target, is_target=True).ids)
        for pair in text
    ]
    counts = Counter(chain.from_iterable(target for _, target in encoded))
    frequent = {token for token, _ in counts.most_common(options.frequent)}
    translations = learn_translations(
        encoded, tokenizer.vocabulary_size, iterations=options.iterations, best=options.best
    )
    # Names and numbers stay as they are.
    kept = {token: sorted({*others, token}) for token, others in translations.items()}
    return Shortlist.of(sorted(frequent | {tokenizer.eos_id, tokenizer.unk_id}), kept)


def read_text(source: Path, target: Path) -> list[Pair]:
    """Reads two files of as many lines, plain, gzip or bzip2; leaves out pairs with an empty side.

    Raises:
        OptionError: They cannot be read, or differ in their number of lines.
    """
    sources, targets = _lines(source, "--source"), _lines(target, "--target")
    if len(sources) != len(targets):
        raise OptionError(
            f"--target: {target} has {len(targets)} lines, {source} has {len(sources)}; each line"
            " translates the same line of the other file"
        )
    pairs = map(Pair, sources, targets)
    return [pair for pair in pairs if pair.source and pair.target]


def _lines(path: Path, option: str) -> list[str]:
    try:
        with open_lines(path) as lines:
            return [line.decode().strip() for line in lines]
    except (OSError, EOFError) as error:
        raise OptionError(f"{option}: {cannot_be_read(path, error)}") from None
    except UnicodeDecodeError:
        raise OptionError(f"{option}: {path} is not UTF-8") from None


def _place(options: ShortlistOptions) -> Path:
    model = options.artifact.resolve().parent
    taken = [int(entry.name) for entry in model.iterdir() if entry.name.isdecimal()]
    folder = model / str(options.model_version or max(taken, default=0) + 1)
    if folder.exists():
        raise OptionError(
            f"--model-version: {folder} exists already; take another one or remove it"
        )
    return folder
