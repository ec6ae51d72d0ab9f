"""Adds to texts what a model needs: its special tokens, and the tokens of the languages.

Families put languages in different places: before the source, after it, first in the target, or in
words in front of the text. The manifest's template says where.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from seqserve_server.artifact.manifest import Manifest
from seqserve_server.artifact.records import Template
from seqserve_server.contract.errors import MAX_LISTED, InvalidRequest, truncated_list
from seqserve_server.text.tokenizer import Tokenizer


class Affixes(NamedTuple):
    """Tokens around a request's source and target."""

    text: str = ""
    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    """Token ids after the end token of the source."""
    target: tuple[int, ...] = ()
    """Token ids of every hypothesis before its text."""
    start_token: int | None = None
    """Token id that the decoder reads first; None for the model's own."""

    def with_special_tokens(self, source: list[int]) -> list[int]:
        """Returns all that the model reads for the token ids of a text."""
        return [*self.before, *source, *self.after] if self.before or self.after else source


NO_AFFIXES = Affixes()


def affixes_of(
    source_language: str,
    target_language: str,
    manifest: Manifest,
    tokenizer: Tokenizer,
    section: str = "options.",
) -> Affixes:
    """Finds what a model adds for the languages of a request; empty for a language not given."""
    codes = {"source": source_language, "target": target_language}
    if manifest.template is None and not any(codes.values()):
        return NO_AFFIXES
    template = manifest.template or Template()
    named = _Named(codes, template, manifest.label, section)
    return Affixes(
        template.text_prefix.format_map(named) if named else "",
        named.ids(template.source_prefix, tokenizer.source.id_of),
        named.ids(template.source_suffix, tokenizer.source.id_of),
        named.ids(template.target_prefix, tokenizer.target.id_of),
        named.start(template.target_start, tokenizer.target.id_of),
    )


class _Named(dict[str, str]):
    """The token or name of each language that a request gives, by its role."""

    def __init__(
        self, codes: Mapping[str, str], template: Template, label: str, section: str
    ) -> None:
        self._template, self._label, self._section = template, label, section
        super().__init__({role: self._find(role, code) for role, code in codes.items() if code})

    def __missing__(self, role: str) -> str:
        known = self._template.languages[role]
        if len(known) == 1:
            return next(iter(known.values()))
        raise self._wrong(role, f"is missing; {self._label} needs one of {_listed(known)}")

    def ids(self, elements: list[str], id_of: Callable[[str], int | None]) -> tuple[int, ...]:
        roles = {f"{{{role}}}": role for role in self._template.languages}
        tokens = [self[roles[each]] if each in roles else each for each in elements]
        # The loader has checked that the vocabulary has all of them.
        return tuple(id_of(token) or 0 for token in tokens)

    def start(self, element: str, id_of: Callable[[str], int | None]) -> int | None:
        is_given = any(element == f"{{{role}}}" for role in self)
        return self.ids([element], id_of)[0] if is_given else None

    def _find(self, role: str, code: str) -> str:
        known = self._template.languages[role]
        if not known:
            raise self._wrong(role, f"is {code!r:.80}, but {self._label} asks for none")
        own = self._template.code_of(role, code)
        if own is None:
            raise self._wrong(role, f"{code!r:.80} is not one of {_listed(known)}")
        return known[own]

    def _wrong(self, role: str, reason: str) -> InvalidRequest:
        return InvalidRequest(f"{self._section}{role}_language", reason)


def _listed(known: Mapping[str, str]) -> str:
    return truncated_list(sorted(known)) + (
        ", which `seqserve models` lists" if len(known) > MAX_LISTED else ""
    )
