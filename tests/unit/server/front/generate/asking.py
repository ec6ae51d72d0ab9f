"""What a feature is made from, for a test of it alone."""

from typing import Any

from tests.unit.server.front.echo import MAX_TARGET, echo_model

from seqserve.v1 import generation_pb2
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.front.generate.records import NO_AFFIXES, Asked, Part
from seqserve_server.front.models.loaded_model import LoadedModel
from seqserve_server.text.glossary import Glossary
from seqserve_server.text.splitting import Span

DECODING = DecodingOptions(max_decoding_length=MAX_TARGET)


def asked(
    decoding: DecodingOptions = DECODING,
    model: LoadedModel | None = None,
    glossary: Glossary | None = None,
    **options: Any,
) -> Asked:
    sent = generation_pb2.GenerationOptions(**options)
    return Asked(sent, decoding, NO_AFFIXES, model or echo_model(), glossary)


def part(text: str, decoding: DecodingOptions = DECODING) -> Part:
    return Part(Span(0, len(text)), text, text, [], decoding)
