"""What a model reads and writes beside its texts; a part of the manifest."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """What the model reads beside the tokens of a text, and the languages that it knows.

    Elements of the three lists, and the start, are tokens as spelled in the vocabulary.
    ``{source}`` and ``{target}`` stand for the token of the source and of the target language.
    """

    source_prefix: list[str] = field(default_factory=list)
    """Tokens before those of a source."""
    source_suffix: list[str] = field(default_factory=list)
    """Tokens after the end token of a source."""
    target_prefix: list[str] = field(default_factory=list)
    """Tokens that every target begins with."""
    target_start: str = ""
    """Token that the decoder reads first if its language is named, in place of the begin token."""
    text_prefix: str = ""
    """Text before a source whose languages are named; it contains ``{source}`` and ``{target}``."""
    source_languages: dict[str, str] = field(default_factory=dict)
    """Token or, for ``text_prefix``, name of each source language, by its code."""
    target_languages: dict[str, str] = field(default_factory=dict)
    """Token or, for ``text_prefix``, name of each target language, by its code."""
    aliases: dict[str, str] = field(default_factory=dict)
    """Other codes of languages, such as those of ISO 639, and the codes that they stand for."""

    @property
    def languages(self) -> dict[str, dict[str, str]]:
        """The languages of each role: ``source`` and ``target``."""
        return {"source": self.source_languages, "target": self.target_languages}

    @property
    def source_tokens(self) -> set[str]:
        """Every token that it may add to a source."""
        return self._filled([*self.source_prefix, *self.source_suffix])

    @property
    def target_tokens(self) -> set[str]:
        """Every token that it may add to a target."""
        start = [self.target_start] if self.target_start else []
        return self._filled([*self.target_prefix, *start])

    def _filled(self, elements: list[str]) -> set[str]:
        languages = {f"{{{role}}}": known for role, known in self.languages.items()}
        found: set[str] = set()
        for element in elements:
            found.update(languages[element].values() if element in languages else [element])
        return found
