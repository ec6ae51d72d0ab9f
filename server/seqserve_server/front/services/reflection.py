"""Reflection: what services there are, for grpcurl and others, by both names of the protocol.

``v1`` and ``v1alpha`` differ in their package alone, and grpcio-reflection has only the older one.

Source: https://github.com/grpc/grpc-proto/blob/master/grpc/reflection/v1/reflection.proto.
"""

from collections.abc import Sequence

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, text_format
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from grpc_reflection.v1alpha.reflection import (  # type: ignore[attr-defined]
    SERVICE_NAME,
    aio,
)

V1 = SERVICE_NAME.replace("v1alpha", "v1")


def add_reflection(services: Sequence[str], server: grpc.aio.Server) -> None:
    """Adds both services to a server; they list themselves, and the services of these names."""
    _declare()
    servicer = aio.ReflectionServicer((*services, SERVICE_NAME, V1))  # type: ignore[attr-defined]
    reflection_pb2_grpc.add_ServerReflectionServicer_to_server(servicer, server)
    handler = grpc.stream_stream_rpc_method_handler(
        servicer.ServerReflectionInfo,
        reflection_pb2.ServerReflectionRequest.FromString,
        reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    server.add_registered_method_handlers(V1, {"ServerReflectionInfo": handler})  # type: ignore[attr-defined]


def _declare() -> None:
    older, newer = descriptor_pb2.FileDescriptorProto(), descriptor_pb2.FileDescriptorProto()
    reflection_pb2.DESCRIPTOR.CopyToProto(older)
    text_format.Parse(text_format.MessageToString(older).replace("v1alpha", "v1"), newer)
    descriptor_pool.Default().AddSerializedFile(newer.SerializeToString())
