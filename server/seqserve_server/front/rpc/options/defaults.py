"""Fills in the decoding options that a model recommends and a request does not set."""

from __future__ import annotations

from google.protobuf import json_format

from seqserve.declarations import DECLARATIONS
from seqserve.v1 import generation_pb2
from seqserve_server.contract.manifest import Manifest
from seqserve_server.contract.options import Sampling
from seqserve_server.front.rpc.options.segmentation import is_excluded

Options = generation_pb2.GenerationOptions

# A request that samples, or asks for alternatives, has chosen another way to search.
_BEAM_SEARCH = [each.name for each in DECLARATIONS.values() if each.group == "beam search"]
_OTHER_WAYS = (*Sampling._fields, "return_alternatives")


def with_defaults(options: Options, manifest: Manifest) -> Options:
    """Returns the options of a request over those that its model recommends."""
    defaults = json_format.ParseDict(manifest.generation, Options())
    if any(options.HasField(name) for name in _OTHER_WAYS):
        for name in _BEAM_SEARCH:
            defaults.ClearField(name)
    # Beside options that it does not go with, the default is not to divide a source.
    if is_excluded(options):
        defaults.ClearField("segmentation")
    defaults.MergeFrom(options)
    return defaults
