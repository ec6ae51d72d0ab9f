"""Writes the descriptor set by which Envoy turns JSON over HTTP into calls of gRPC.

    python deploy/envoy/descriptor.py deploy/envoy/http.pb

It needs ``googleapis-common-protos`` in addition to seqserve. The paths are the same as in
``seqserve gateway``. They are in the descriptor set alone, so neither the protos nor the clients
depend on the annotations of Google.
Source: google/api/http.proto, ``HttpRule``.
"""

import sys
from pathlib import Path

from google.api import annotations_pb2
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import FileDescriptor
from google.rpc import error_details_pb2

from seqserve.v1 import generation_pb2, model_pb2
from seqserve_gateway.v1 import CALLS, is_get

_PATHS = {call.name: path for path, call in CALLS.items()}
"""By method; the others stay with gRPC and gRPC-web."""


def descriptor_set() -> descriptor_pb2.FileDescriptorSet:
    """Returns the files of the API, each after those it imports, with the paths of its methods."""
    files: dict[str, descriptor_pb2.FileDescriptorProto] = {}
    # Envoy writes details of errors as JSON if it knows their types.
    for module in (annotations_pb2, error_details_pb2, generation_pb2, model_pb2):
        _add(module.DESCRIPTOR, files)
    for file in files.values():
        methods = [method for service in file.service for method in service.method]
        for method in methods:
            if path := _PATHS.get(method.name):
                rule = method.options.Extensions[annotations_pb2.http]
                if is_get(CALLS[path]):
                    rule.get = path
                else:
                    rule.post, rule.body = path, "*"
        if methods:
            file.dependency.append(annotations_pb2.DESCRIPTOR.name)
    return descriptor_pb2.FileDescriptorSet(file=files.values())


def _add(file: FileDescriptor, files: dict[str, descriptor_pb2.FileDescriptorProto]) -> None:
    for imported in file.dependencies:
        _add(imported, files)
    if file.name not in files:
        files[file.name] = descriptor_pb2.FileDescriptorProto()
        file.CopyToProto(files[file.name])


if __name__ == "__main__":
    Path(sys.argv[1]).write_bytes(descriptor_set().SerializeToString())
