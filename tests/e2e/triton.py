"""Calls of tritonclient, each run in its own process.

Its stubs and the server's define the same messages, which one process cannot have twice: nothing
here may import the server's, and no test may import tritonclient.
"""

import contextlib
import io
import queue
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Answer = dict[str, list[Any]]


def _client(target: str) -> Any:
    from tritonclient import grpc

    return grpc.InferenceServerClient(target)


def _input(texts: Sequence[str]) -> Any:
    from tritonclient import grpc

    tensor = grpc.InferInput("text", [len(texts)], "BYTES")
    tensor.set_data_from_numpy(np.array(texts, dtype=object))
    return tensor


def _answer(result: Any) -> Answer:
    response = result.get_response()
    read: Answer = {"version": response.model_version, "id": response.id}
    for output in response.outputs:
        values = result.as_numpy(output.name)
        texts = output.datatype == "BYTES"
        read[output.name] = (
            np.char.decode(values.astype(bytes)).tolist() if texts else values.tolist()
        )
    return read


def infer(
    target: str,
    model: str,
    texts: Sequence[str],
    *,
    parameters: Mapping[str, Any] | None = None,
    **more: Any,
) -> Answer:
    """Sends texts as numpy arrays and reads the answer as arrays."""
    with _client(target) as client:
        given = {"parameters": dict(parameters or {}), **more}
        return _answer(client.infer(model, [_input(texts)], **given))


def stream(
    target: str, model: str, requests: Sequence[tuple[Sequence[str], Mapping[str, Any]]]
) -> list[Answer | str]:
    """Sends requests on one stream; an error is returned as its text."""
    found: queue.Queue[Answer | str] = queue.Queue()

    def note(result: Any, error: Any) -> None:
        found.put(_answer(result) if error is None else str(error.message()))

    with _client(target) as client:
        client.start_stream(note)
        for number, (texts, parameters) in enumerate(requests):
            given = {"request_id": str(number), "parameters": dict(parameters)}
            client.async_stream_infer(model, [_input(texts)], **given)
        client.stop_stream()
    return list(found.queue)


def describe(target: str, model: str) -> dict[str, Any]:
    with _client(target) as client:
        return {
            "live": client.is_server_live(),
            "ready": client.is_server_ready(),
            "model ready": client.is_model_ready(model),
            "version ready": client.is_model_ready(model, "1"),
            "other ready": client.is_model_ready("nothing"),
            "server": client.get_server_metadata(as_json=True),
            "model": client.get_model_metadata(model, as_json=True),
            "config": client.get_model_config(model, as_json=True),
            "index": client.get_model_repository_index(as_json=True),
        }


def statistics(target: str, model: str) -> dict[str, Any]:
    with _client(target) as client:
        client.infer(model, [_input(["a", "b"])], parameters={"max_decoding_length": 3})
        [found] = client.get_inference_statistics(model, as_json=True)["model_stats"]
        return dict(found)


def change(target: str, model: str) -> list[bool]:
    ready = []
    with _client(target) as client:
        for call in (client.unload_model, client.load_model):
            call(model)
            ready.append(client.is_model_ready(model))
    return ready


def run(code: str) -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "docs/api.md", "exec"), {})
    return printed.getvalue()


def beside_ours(target: str, model: str, text: str) -> tuple[str, str]:
    from seqserve import Client

    short = {"max_decoding_length": 12}
    with Client(target) as client:
        ours = client.generate(text, model=model, **short).text
    return ours, infer(target, model, [text], parameters=short)["text"][0]


def contract() -> dict[str, Any]:
    from tritonclient.grpc import model_config_pb2, service_pb2

    return described(service_pb2.DESCRIPTOR) | described(model_config_pb2.DESCRIPTOR)


def described(file: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for message in file.message_types_by_name.values():
        _describe(message, found)
    for enum in file.enum_types_by_name.values():
        found[enum.full_name] = {value.name: value.number for value in enum.values}
    for service in file.services_by_name.values():
        found[service.full_name] = {
            method.name: (
                method.input_type.full_name,
                method.output_type.full_name,
                method.client_streaming,
                method.server_streaming,
            )
            for method in service.methods
        }
    return found


def _describe(message: Any, found: dict[str, Any]) -> None:
    found[message.full_name] = {
        field.name: (
            field.number,
            field.type,
            field.has_presence,
            *(
                _name(kind)
                for kind in (field.message_type, field.enum_type, field.containing_oneof)
            ),
        )
        for field in message.fields
    }
    for nested in message.nested_types:
        _describe(nested, found)


def _name(kind: Any) -> str:
    return kind.full_name if kind else ""
