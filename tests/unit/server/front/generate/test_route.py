from pathlib import Path

import pytest
from tests.unit.server.front.echo import echo_model, manifest
from tests.unit.server.front.generate.asking import pair

from seqserve.v1 import generation_pb2 as pb
from seqserve_server.artifact.records import Template
from seqserve_server.contract.errors import Draining, InvalidRequest, ModelUnavailable
from seqserve_server.contract.request import Priority
from seqserve_server.front.call.server_call import ServerCall
from seqserve_server.front.generate.route import find_model, priority_of
from seqserve_server.front.models.lifecycle import Entry, ModelState
from seqserve_server.front.models.repository import Repository
from seqserve_server.text.glossary_folder import GlossaryFolder

Options = pb.GenerationOptions


def test_priority() -> None:
    known = [priority_of(number) for number in (0, pb.PRIORITY_NORMAL, pb.PRIORITY_LOW)]
    assert known == [Priority.NORMAL, Priority.NORMAL, Priority.LOW]
    with pytest.raises(InvalidRequest, match="priority: 7 is not known"):
        priority_of(7)


def test_a_glossary_is_for_the_languages_of_the_request_or_of_the_model(tmp_path: Path) -> None:
    for languages in ("en-de", "ko-de"):
        (tmp_path / f"a.{languages}.tsv").write_text("tea\tTee\n")
    glossaries = GlossaryFolder(tmp_path)
    glossaries.open()

    def found(template: Template, **options: str) -> str:
        named = glossaries.of_request(Options(glossary="a", **options), template)
        assert named
        return named.label.source

    assert glossaries.of_request(Options(), None) is None
    assert found(pair("en", "de")) == "en"
    several = Template(source_languages={"en": "", "ko": ""}, target_languages={"de": ""})
    assert found(several, source_language="ko") == "ko"
    with pytest.raises(InvalidRequest, match=r"options.glossary: .*'a' is for en to de, ko to de"):
        found(several)
    with pytest.raises(InvalidRequest, match="the request is for en to fr"):
        found(pair("en", "fr"))


def entry(version: int) -> Entry:
    model = echo_model(manifest(version=version))
    return Entry(name="echo", version=version, state=ModelState.READY, model=model)


async def test_call_that_asks_again_gets_the_version_it_has() -> None:
    older, newer = entry(1), entry(2)
    repository = Repository([older])
    repository.choose_default()
    call = ServerCall(path="/s/m", request_id="1")
    model = await find_model("", 0, repository, call)
    assert model is older.model and call.model == "echo"
    repository.add(newer)
    older.move(ModelState.DRAINING)
    for name, version in (("", 0), ("echo", 0), ("echo", 1)):
        assert await find_model(name, version, repository, call) is model
    assert await find_model("echo", 2, repository, call) is newer.model
    assert not await model.calls.wait_idle(0.0)
    call.release_models()
    assert await model.calls.wait_idle(0.0)
    # A version that drains takes no other call.
    other = ServerCall(path="/s/m", request_id="2")
    assert await find_model("", 0, repository, other) is newer.model
    with pytest.raises(ModelUnavailable, match="echo/1 is being unloaded"):
        await find_model("echo", 1, repository, other)


async def test_server_that_shuts_down_gives_a_version_only_to_a_call_that_has_one() -> None:
    repository = Repository([entry(1)])
    repository.choose_default()
    call = ServerCall(path="/s/m", request_id="1")
    model = await find_model("", 0, repository, call)
    repository.is_closed = True
    assert await find_model("", 0, repository, call) is model
    late = ServerCall(path="/s/m", request_id="2")
    with pytest.raises(Draining):
        await find_model("", 0, repository, late)
    # The refusal counts for the model that the call would have had.
    assert late.model == "echo" and late.models == []
    call.release_models()
    assert await model.calls.wait_idle(0.0)
