"""Pairs of languages, and the model that translates each, from what the server lists.

All that chooses a model is in this module. A server that chooses by the languages of a request
needs none of it but the codes.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from seqserve import AsyncClient
from seqserve.decoding import GenerateOptions
from seqserve.model import Model, ModelState
from seqserve_gateway.call import Call
from seqserve_gateway.translation.fields import refusal

AUTO = "auto"
"""Stands for the language of the source, which the client does not know."""
_NAME = re.compile(r"([a-z]{2,3})-([a-z]{2,3})")
# A new model is known this soon.
_KEPT_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A source and a target language."""

    source: str
    target: str
    options: GenerateOptions
    """What makes a call translate it."""


class Pairs:
    """The pairs of a server."""

    def __init__(self, pairs: Sequence[Pair]) -> None:
        """Takes the pairs; of several of the same languages the first is used."""
        self._pairs = {(pair.source, pair.target): pair for pair in reversed(pairs)}

    @property
    def sources(self) -> list[str]:
        """Codes of the languages of sources, in order."""
        return sorted({source for source, _ in self._pairs})

    @property
    def targets(self) -> list[str]:
        """Codes of the languages of targets, in order."""
        return sorted({target for _, target in self._pairs})

    def targets_of(self, source: str) -> list[str]:
        """Codes of the languages into which a language is translated, in order."""
        return sorted(target for its_source, target in self._pairs if its_source == source)

    def find(self, source: str, target: str, names: tuple[str, str]) -> Pair:
        """Returns the pair of two codes, of which regions and capitals may differ.

        Args:
            source: Code of the source, or :data:`AUTO`.
            target: Code of the target.
            names: Names of the fields of both, for errors.

        Raises:
            Failure: The server does not translate it, or cannot tell the language of the source.
        """
        into = _known(target, self.targets)
        if into is None:
            raise refusal(names[1], f"{target} is not supported; there are {_listed(self.targets)}")
        if source == AUTO:
            return self._only(into, names[0])
        out_of = _known(source, [*self.sources, into])
        if out_of == into:
            return Pair(source=into, target=into, options={})
        if out_of is None or (out_of, into) not in self._pairs:
            there = _listed([key[0] for key in sorted(self._pairs) if key[1] == into])
            raise refusal(names[0], f"{source} is not supported; into {into} there are {there}")
        return self._pairs[out_of, into]

    def detected(self) -> str:
        """Returns the language of every text: the only one that the server reads.

        Raises:
            Failure: It reads several.
        """
        if len(self.sources) != 1:
            raise refusal("q", self._undetected(self.sources))
        return self.sources[0]

    def _only(self, target: str, name: str) -> Pair:
        pairs = [pair for key, pair in self._pairs.items() if key[1] == target]
        if len(pairs) != 1:
            raise refusal(name, self._undetected(sorted(pair.source for pair in pairs)))
        return pairs[0]

    def _undetected(self, sources: Sequence[str]) -> str:
        return (
            "the server does not detect languages, and reads several; name one of"
            f" {_listed(sources)}, or install a server that detects them"
        )


async def pairs_of(call: Call) -> Pairs:
    """Returns the pairs of the server behind a call; of the same caller they are kept a while.

    Raises:
        CallError: The server does not list its models.
    """
    now_s = time.monotonic()
    until_s, token, pairs = _KEPT.get(call.client, (0.0, None, None))
    if pairs is None or token != call.token or until_s < now_s:
        pairs = _pairs(await call.client.models(timeout_s=call.left_s))
        _KEPT[call.client] = (now_s + _KEPT_S, call.token, pairs)
    return pairs


_KEPT: WeakKeyDictionary[AsyncClient, tuple[float, str | None, Pairs]] = WeakKeyDictionary()


def _pairs(models: Sequence[Model]) -> Pairs:
    """Takes the pairs that models declare; one that declares none may be named for its pair."""
    pairs = []
    for model in sorted(models, key=lambda model: (not model.is_default, model.name)):
        if model.state is not ModelState.READY:
            continue
        if name := _NAME.fullmatch(model.name):
            named: GenerateOptions = {"model": model.name, "segmentation_language": name[1]}
            pairs.append(Pair(source=name[1], target=name[2], options=named))
        pairs += [
            Pair(
                source=source,
                target=target,
                options={
                    "model": model.name,
                    "source_language": source,
                    "target_language": target,
                },
            )
            for source in model.source_languages
            for target in model.target_languages
            if source != target
        ]
    return Pairs(pairs)


def _known(code: str, codes: Sequence[str]) -> str | None:
    """Returns which code a client means: the same one, or the one without a region."""
    by_lower = {each.lower(): each for each in codes}
    lower = code.lower().replace("_", "-")
    return by_lower.get(lower) or by_lower.get(lower.partition("-")[0])


def _listed(codes: Sequence[str]) -> str:
    return ", ".join(codes) or "none"
