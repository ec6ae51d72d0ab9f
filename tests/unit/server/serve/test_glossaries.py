from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.unit.server.front.calls import invalid
from tests.unit.server.front.generate.asking import pair
from tests.unit.server.front.service import Service, serving
from tests.unit.server.open_inference.tensor import asking

from seqserve.v1 import generation_pb2, model_pb2

# The model answers with the source, so that it has the targets of these.
ENTRIES = [generation_pb2.Term(source=text, target=text) for text in ("tea", "cake")]


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    lines = "".join(f"{entry.source}\t{entry.target}\n" for entry in ENTRIES)
    (tmp_path / "drinks.en-de.tsv").write_text(lines)
    (tmp_path / "drinks.ko-de.tsv").write_text("차\tTee\n")
    (tmp_path / "french.en-fr.tsv").write_text("tea\tthé\n")
    async with serving(template=pair("en", "de"), glossaries=tmp_path, slots=8) as service:
        yield service


async def test_glossaries_are_listed(service: Service) -> None:
    answer = await service.models.ListGlossaries(model_pb2.ListGlossariesRequest())
    labels = [(g.name, g.source_language, g.target_language) for g in answer.glossaries]
    assert labels == [("drinks", "en", "de"), ("drinks", "ko", "de"), ("french", "en", "fr")]
    assert answer.glossaries[0].entry_count == 2
    assert answer.glossaries[0].modified_s > 1_000_000_000


async def test_a_glossary_is_given_with_its_entries(service: Service) -> None:
    asked = model_pb2.GetGlossaryRequest(glossary="drinks", source_language="en-US")
    answer = await service.models.GetGlossary(asked)
    assert answer.glossary.source_language == "en"
    assert list(answer.entries) == ENTRIES
    asked = model_pb2.GetGlossaryRequest(glossary="drinks")
    field, reason = await invalid(service.models.GetGlossary(asked))
    assert field == "glossary" and reason.startswith("'drinks' is for en to de, ko to de")


async def test_terms_of_a_glossary_apply(service: Service) -> None:
    answer = await service.generate("some TEA", glossary="drinks")
    assert "tea" in answer.hypotheses[0].text
    assert not answer.hypotheses[0].unmet_terms
    steam = await service.generate("steam", glossary="drinks")
    assert steam.hypotheses == (await service.generate("steam")).hypotheses, "whole words"
    own = generation_pb2.Term(source="Tea", target="milk")
    ending = {"glossary": "drinks", "terms": [own], "max_decoding_length": 4}
    answer = await service.generate("Tea", **ending)
    assert "milk" in answer.hypotheses[0].text, "its own term goes before that of the glossary"


async def test_a_glossary_is_a_parameter_of_the_open_inference_protocol(service: Service) -> None:
    _, reason = await invalid(service.inference.ModelInfer(asking("tea", glossary="french")))
    assert "'french' is for en to fr" in reason
