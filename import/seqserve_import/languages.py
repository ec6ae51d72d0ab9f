"""The languages that a checkpoint knows, and where its family wants them."""

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import langcodes

from seqserve.language_codes import folded
from seqserve_import.checkpoint import Checkpoint, Settings
from seqserve_import.ctranslate2_checkpoint import CTranslate2Checkpoint, package_pair
from seqserve_import.files import read_optional_object
from seqserve_import.generation import forced_first_token
from seqserve_import.marian_checkpoint import MarianCheckpoint
from seqserve_import.tokenizers.special import TAG, language_of
from seqserve_server.artifact.records import Template

Tokens = Collection[str]
Targets = Mapping[int, str]

_MARIAN = re.compile(r">>([^<>]+)<<")
# Each language is a whole part between separators; that there may be three, a lookahead shows.
_PAIR = re.compile(r"(?<![A-Za-z0-9])(?=([a-z]{2})[-_]([a-z]{2})(?![A-Za-z0-9]))")
# Firefox joins the two. So do words such as "best", if nothing else in the names repeats them.
_JOINED = re.compile(r"(?<![A-Za-z0-9])([a-z]{2})([a-z]{2})(?![A-Za-z0-9])")
_DATED = re.compile(r"^([a-z]{2})([a-z]{2})-\d{9,}$")
_SMALL_100 = "tokenization_small100.py"
_T5_TASK = re.compile(r"translation_((?:(?!_to_)\w)++)_to_(\w++)")
_T5_PREFIX = re.compile(r"translate (\w+) to (\w+): ")


def template_of(
    checkpoint: Checkpoint,
    source: Mapping[int, str],
    target: Mapping[int, str],
    added: Collection[str] = (),
) -> Template | None:
    """Finds the special tokens and languages of a checkpoint.

    Args:
        source: The token of each id of a source; ``target`` is the same of a target.
        added: Tokens that are not pieces of texts.

    Returns:
        None if it reads nothing but the tokens of a text and the end token.

    Raises:
        CheckpointError: The first token of its targets is unknown.
    """
    kind, tokens = checkpoint.layout, set(source.values())
    # Texts of the Web have pieces such as en_US.
    if kind in ("m2m_100", "mbart") and any(map(language_of, added)):
        tokens = set(added)
    template = _FAMILIES[kind](checkpoint, tokens, target) if kind in _FAMILIES else Template()
    forced = forced_first_token(checkpoint.recommended)
    if forced is not None and forced not in target:
        raise checkpoint.generation.wrong("forced_bos_token_id", "is not a token")
    if forced is not None and not template.target_prefix:
        template = replace(template, target_prefix=[target[forced]])
    if isinstance(checkpoint, CTranslate2Checkpoint):
        template = replace(template, aliases={**template.aliases, **checkpoint.aliases})
    return None if template == Template() else template


def pair_of(checkpoint: Checkpoint) -> tuple[str, str]:
    """Finds the languages of a checkpoint of one pair; empty where it does not say.

    OPUS-MT names them in ``tokenizer_config.json``, Marian and Firefox in the names of files and
    folders, and in the paths of ``decoder.yml``: ``en-pt``, ``enpt-1693087644``, and
    ``model.enpt.intgemm.alphas.bin`` with ``vocab.enpt.spm``; Argos in ``metadata.json``. Only
    languages of ISO 639-1 count, because others may be groups, such as ``mul``.
    """
    path = checkpoint.folder / "tokenizer_config.json"
    if checkpoint.config.text("model_type") == "marian" and path.is_file():
        settings = Settings.read(path)
        codes = [settings.text(f"{side}_lang", "") for side in ("source", "target")]
        source, target = (code if _is_common(code) else "" for code in codes)
        return source, target
    if isinstance(checkpoint, CTranslate2Checkpoint) and all(package_pair(checkpoint.folder)):
        return package_pair(checkpoint.folder)
    for pairs in _named_pairs(checkpoint):
        known = {pair for pair in pairs if all(map(_is_common, pair))}
        if len(known) == 1:
            return known.pop()
    return "", ""


def _named_pairs(checkpoint: Checkpoint) -> Iterable[list[tuple[str, str]]]:
    """Lists what each of the names says that may tell the pair."""
    names = [checkpoint.folder.name]
    if isinstance(checkpoint, MarianCheckpoint):
        files = checkpoint.files
        model = files.model.name
        yield _PAIR.findall(model)
        yield [
            pair
            for pair in _JOINED.findall(model)
            if pair in _JOINED.findall(files.source_vocabulary.name)
        ]
        names = [*(Path(path).parent.name for path in files.decoding.texts("models")), *names]
    elif not isinstance(checkpoint, CTranslate2Checkpoint):
        return
    for name in names:
        # Not Maltese.
        yield _PAIR.findall(name.replace("opus-mt", ""))
        yield _DATED.findall(name)


def _is_common(code: str) -> bool:
    return len(folded(code).name) == 2 and langcodes.tag_is_valid(code)


def _marian(checkpoint: Checkpoint, tokens: Tokens, target: Targets) -> Template:
    """Names the target language by a token before the source: OPUS-MT of several targets."""
    codes = _codes(_MARIAN, tokens)
    return _before_source(codes) if codes else Template()


def _m2m100(checkpoint: Checkpoint, tokens: Tokens, target: Targets) -> Template:
    """Names the source language before the source, and the target language first in the target.

    SMaLL-100 has the target language before the source, and nothing in the target. Its own class of
    tokenizers tells it from the others.
    """
    codes = _languages(tokens)
    folder = checkpoint.folder
    tokenizer = read_optional_object(folder / "tokenizer_config.json").get("tokenizer_class")
    if codes and (tokenizer == "SMALL100Tokenizer" or (folder / _SMALL_100).exists()):
        return _before_source(codes)
    return _of_both(codes, **_AT_FRONT) if codes else Template()


def _mbart(checkpoint: Checkpoint, tokens: Tokens, target: Targets) -> Template:
    """Names languages as mBART-50 does, or as mBART: the source language after the source.

    mBART, and IndicBART with its tags, start a target with its language, if none is named with that
    of the checkpoint. An mBART-50 that forces one target needs no name for it.
    """
    codes = _languages(tokens)
    if not codes:
        return Template()
    generation = checkpoint.generation
    if generation.optional_number("decoder_start_token_id") in generation.numbers("eos_token_id"):
        forced = forced_first_token(checkpoint.recommended)
        named = None if forced is None else target.get(forced)
        only = {code: token for code, token in codes.items() if token == named}
        return _of_both(codes, **_AT_FRONT, target_languages=only or codes)
    return _of_both(codes, source_suffix=["{source}"], target_start="{target}")


def _codes(pattern: re.Pattern[str], tokens: Tokens) -> dict[str, str]:
    return {match[1]: token for token in tokens if (match := pattern.fullmatch(token))}


def _languages(tokens: Tokens) -> dict[str, str]:
    return {code: token for token in sorted(tokens) if (code := language_of(token))}


def _before_source(codes: dict[str, str]) -> Template:
    return Template(source_prefix=["{target}"], target_languages=codes, aliases=_aliases(codes))


_AT_FRONT: dict[str, Any] = {"source_prefix": ["{source}"], "target_prefix": ["{target}"]}


def _of_both(codes: dict[str, str], **places: Any) -> Template:
    languages = {"source_languages": codes, "target_languages": codes}
    return Template(aliases=_aliases(codes), **(languages | places))


def _t5(checkpoint: Checkpoint, tokens: Tokens, target: Targets) -> Template:
    """Names languages as MADLAD does, by a token before the source, or in T5's own words."""
    codes = _codes(TAG, tokens)
    if codes:
        return _before_source(codes)
    names: dict[str, dict[str, str]] = {"source": {}, "target": {}}
    for task, prefix in _t5_tasks(checkpoint.config):
        pair, languages = _T5_TASK.fullmatch(task), _T5_PREFIX.fullmatch(prefix)
        if pair and languages:
            names["source"][pair[1]], names["target"][pair[2]] = languages.groups()
    if not names["source"]:
        return Template()
    return Template(
        text_prefix="translate {source} to {target}: ",
        source_languages=names["source"],
        target_languages=names["target"],
    )


def _t5_tasks(config: Settings) -> Iterable[tuple[str, str]]:
    tasks = config.some(["task_specific_params"]).get("task_specific_params", {})
    for name, values in tasks.items() if isinstance(tasks, dict) else ():
        prefix = values.get("prefix") if isinstance(values, dict) else None
        if isinstance(prefix, str):
            yield name, prefix


def _aliases(codes: Iterable[str]) -> dict[str, str]:
    codes = set(codes)
    meant: defaultdict[str, set[str]] = defaultdict(set)
    for code in codes:
        language = re.split(r"[_-]", code)[0]
        meant[language].add(code)
        if langcodes.tag_is_valid(language):
            named = langcodes.Language.get(language)
            for form in (named, named.prefer_macrolanguage()):
                meant[form.language or language].add(code)
    return {
        alias: next(iter(languages))
        for alias, languages in sorted(meant.items())
        if len(languages) == 1 and alias not in codes
    }


_FAMILIES: Mapping[str, Callable[[Checkpoint, Tokens, Targets], Template]] = {
    "m2m_100": _m2m100,
    "marian": _marian,
    "marian-native": _marian,
    "mbart": _mbart,
    "mt5": _t5,
    "t5": _t5,
    "umt5": _t5,
}
