"""Which model, priority and glossary a request gets."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.server.front.echo import manifest

from seqserve.v1 import generation_pb2
from seqserve_server.artifact.manifest import Manifest
from seqserve_server.artifact.template import Template
from seqserve_server.contract.errors import InvalidRequest
from seqserve_server.contract.request import Priority
from seqserve_server.front.generate.route import priority_of
from seqserve_server.front.glossaries import GlossaryFolder

Options = generation_pb2.GenerationOptions


def test_priority() -> None:
    known = {
        generation_pb2.PRIORITY_UNSPECIFIED: Priority.NORMAL,
        generation_pb2.PRIORITY_NORMAL: Priority.NORMAL,
        generation_pb2.PRIORITY_LOW: Priority.LOW,
    }
    assert {number: priority_of(number) for number in known} == known
    with pytest.raises(InvalidRequest, match="priority: 7 is not known"):
        priority_of(7)


def manifest_of(source: dict[str, str], target: dict[str, str]) -> Manifest:
    languages = Template(source_languages=source, target_languages=target)
    return replace(manifest(), template=languages)


def test_a_glossary_is_for_the_languages_of_the_request_or_of_the_model(tmp_path: Path) -> None:
    for pair in ("en-de", "ko-de"):
        (tmp_path / f"a.{pair}.tsv").write_text("tea\tTee\n")
    glossaries = GlossaryFolder(tmp_path)
    glossaries.open()

    def found(manifest: Manifest, **options: str) -> str:
        named = glossaries.of_request(Options(glossary="a", **options), manifest.template)
        assert named
        return named.label.source

    assert glossaries.of_request(Options(), None) is None
    assert found(manifest_of({"en": ""}, {"de": ""})) == "en"
    several = manifest_of({"en": "", "ko": ""}, {"de": ""})
    assert found(several, source_language="ko") == "ko"
    with pytest.raises(InvalidRequest, match=r"options.glossary: .*'a' is for en to de, ko to de"):
        found(several)
    with pytest.raises(InvalidRequest, match="the request is for en to fr"):
        found(manifest_of({"en": ""}, {"fr": ""}))
