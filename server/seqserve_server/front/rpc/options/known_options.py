"""Caches converted options, because callers send the same options again and again."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from seqserve_server.contract.options import DecodingOptions
from seqserve_server.front.models.repository import ServedModel
from seqserve_server.front.rpc.options.options import Options, decoding_options

# Longer options mostly hold texts of one request, which do not come again.
_MAX_BYTES = 128
_MAX_ENTRIES = 256


class KnownOptions:
    """Converts options as :func:`decoding_options` does, once for each version of a model.

    Without the cache the conversion takes a tenth of the time of a call.
    """

    def __init__(self) -> None:
        """Starts empty."""
        self._known: WeakKeyDictionary[ServedModel, dict[bytes, DecodingOptions]] = (
            WeakKeyDictionary()
        )

    def read(self, model: ServedModel, options: Options) -> DecodingOptions:
        """Checks the options of a request and converts them for the engine."""
        known = self._known.setdefault(model, {})
        sent = options.SerializeToString()
        found = known.get(sent)
        if found is None:
            engine = model.engine
            found = decoding_options(options, model.manifest, model.tokenizer, engine.max_rows)
            # A random seed must be another one each time.
            if len(sent) <= _MAX_BYTES and found.sampling is None:
                if len(known) >= _MAX_ENTRIES:
                    known.clear()
                known[sent] = found
        return found
