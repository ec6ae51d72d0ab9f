"""The call of a question as code to copy, in Python and for grpcurl."""

from __future__ import annotations

import shlex
from dataclasses import asdict

from google.protobuf.json_format import MessageToJson

from seqserve.requests import generate_request
from seqserve.tls import TLS
from seqserve_gateway.playground.question import Question
from seqserve_gateway.upstream import UpstreamSettings

_METHOD = "seqserve.v1.GenerationService/Generate"
_FLAGS = {"ca": "-cacert", "certificate": "-cert", "key": "-key", "server_name": "-authority"}


def call_code(settings: UpstreamSettings, question: Question) -> dict[str, str]:
    """Writes the call in each language.

    Args:
        settings: Of the client; its token is left to the variable SEQSERVE_TOKEN.
        question: The source and the options.

    Raises:
        InvalidArgument: An option does not fit its field.
    """
    return {"python": _python(settings, question), "grpcurl": _grpcurl(settings, question)}


def _python(settings: UpstreamSettings, question: Question) -> str:
    tls, token = settings.tls, settings.token
    client = [repr(settings.target)]
    if tls is not None:
        client.append(f"tls=TLS({', '.join(f'{k}={v!r}' for k, v in _given(tls).items())})")
    if token is not None:
        client.append('token=os.environ["SEQSERVE_TOKEN"]')
    keywords = [f"{name}={value!r}" for name, value in question.options.items()]
    return "\n".join(
        [
            *(["import os", ""] if token is not None else []),
            f"from seqserve import {'Client' if tls is None else 'TLS, Client'}",
            "",
            f"with Client({', '.join(client)}) as client:",
            "    result = client.generate(",
            *(f"        {argument}," for argument in (repr(question.source), *keywords)),
            "    )",
            "print(result.text)",
        ]
    )


def _grpcurl(settings: UpstreamSettings, question: Question) -> str:
    tls, token = settings.tls, settings.token
    request = generate_request(question.source, **question.options)
    words = ["grpcurl"]
    if tls is None:
        words.append("-plaintext")
    else:
        words += [f"{_FLAGS[k]} {shlex.quote(v)}" for k, v in _given(tls).items()]
    if token is not None:
        words.append('-H "authorization: Bearer $SEQSERVE_TOKEN"')
    data = MessageToJson(request, preserving_proto_field_name=True, indent=2, ensure_ascii=False)
    words.append(f"-d {shlex.quote(data)} \\\n  {shlex.quote(settings.target)} {_METHOD}")
    return " ".join(words)


def _given(tls: TLS) -> dict[str, str]:
    return {name: str(value) for name, value in asdict(tls).items() if value is not None}
