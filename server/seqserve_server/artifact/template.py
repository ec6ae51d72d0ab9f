"""Special tokens and languages of a model; a part of the manifest."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from seqserve.language_codes import code_among


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """Tokens that the model reads around a text, and the languages that it knows.

    Elements of the three lists, and the start, are tokens as spelled in the vocabulary.
    ``{source}`` and ``{target}`` mean the tokens of the source and the target language. A model
    serves every pair of a source and a target language that differ.
    """

    source_prefix: list[str] = field(default_factory=list)
    """Tokens before the source."""
    source_suffix: list[str] = field(default_factory=list)
    """Tokens after the end token of a source."""
    target_prefix: list[str] = field(default_factory=list)
    """Tokens that every target begins with."""
    target_start: str = ""
    """Token that the decoder reads first instead of the begin token, if its language is named."""
    text_prefix: str = ""
    """Text before a source whose languages are named; it contains ``{source}`` and ``{target}``."""
    source_languages: dict[str, str] = field(default_factory=dict)
    """Token or, for ``text_prefix``, name of each source language, by its code; empty where the
    model reads none."""
    target_languages: dict[str, str] = field(default_factory=dict)
    """The same of each target language."""
    aliases: dict[str, str] = field(default_factory=dict)
    """Other codes of languages, such as ISO 639, and the codes that they mean."""

    @property
    def languages(self) -> dict[str, dict[str, str]]:
        """The languages of each role: ``source`` and ``target``."""
        return {"source": self.source_languages, "target": self.target_languages}

    def code_of(self, role: str, code: str) -> str | None:
        """Finds the code that this template has for a language of a role; None if not clear."""
        return code_among(code, self.languages[role], self.aliases)

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
        tokens: set[str] = set()
        for element in elements:
            tokens.update(languages[element].values() if element in languages else [element])
        return tokens


def shared_languages(templates: Sequence[Template | None]) -> Template:
    """Returns the last of some templates with the languages that all of them know."""
    *others, last = [template or Template() for template in templates]
    languages = {
        role: {
            code: token
            for code, token in known.items()
            if all(other.code_of(role, code) is not None for other in others)
        }
        for role, known in last.languages.items()
    }
    return replace(last, source_languages=languages["source"], target_languages=languages["target"])
