"""Writes into the chart's schema which variables it takes: python deploy/helm/options.py.

They are the options of ``seqserve serve`` and ``seqserve gateway``, with types and bounds, except
those that other values of the chart set.
"""

import dataclasses
import json
import types
import typing
from enum import Enum
from pathlib import Path
from typing import Any

from seqserve.option_values import variable_of
from seqserve_gateway.command import GatewayOptions
from seqserve_server.front.config import ServeOptions

SCHEMA = Path(__file__).parent / "seqserve" / "values.schema.json"
_SERVER_OWN = {
    *("model_repository", "port", "metrics_port", "drain_timeout_s"),
    *("insecure", "tls_certificate", "tls_key", "tls_client_ca", "tokens"),
}
_GATEWAY_OWN = {
    *("target", "tls", "tls_ca", "tls_client_certificate", "tls_client_key", "tls_server_name"),
    *("token_file", "lend_token"),
}
_TYPES: dict[Any, dict[str, Any]] = {
    int: {"type": "integer"},
    # `--set` makes a text of a number with a point.
    float: {"type": ["number", "string"], "pattern": "^[0-9]*[.]?[0-9]+$"},
    bool: {"type": "boolean"},
}


def schema_of(options: type[Any], own: set[str]) -> dict[str, Any]:
    """Returns the JSON schema of the variables of a command, without those that ``own`` names."""
    hints = typing.get_type_hints(options)
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            variable_of(field.name): _value(hints[field.name], field.metadata)
            for field in dataclasses.fields(options)
            if field.metadata["has_variable"] and not field.metadata["secret"]
            if field.name not in own
        },
    }


def written(schema: str) -> str:
    """Returns the chart's schema with the variables of today."""
    values = json.loads(schema)["properties"]
    values["options"] = schema_of(ServeOptions, _SERVER_OWN)
    values["gateway"]["properties"]["options"] = schema_of(GatewayOptions, _GATEWAY_OWN)
    return json.dumps({**json.loads(schema), "properties": values}, indent=2) + "\n"


def _value(hint: Any, metadata: Any) -> dict[str, Any]:
    if isinstance(hint, types.UnionType):
        [hint] = (kind for kind in hint.__args__ if kind is not types.NoneType)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return {"enum": [member.value for member in hint]}
    bounds = {name: metadata[name] for name in ("minimum", "maximum") if metadata[name] is not None}
    return {**_TYPES.get(hint, {"type": "string"}), **bounds}


if __name__ == "__main__":
    SCHEMA.write_text(written(SCHEMA.read_text(encoding="utf-8")), encoding="utf-8")
