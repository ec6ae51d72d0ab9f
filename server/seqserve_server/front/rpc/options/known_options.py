"""Options that callers send again and again: checked once for each version of a model."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from seqserve_server.contract.options import DecodingOptions
from seqserve_server.front.models.repository import ServedModel
from seqserve_server.front.rpc.options.options import Options, decoding_options

# Longer ones hold texts of one request, as a rule, and would only take up room.
_LONGEST = 128
_MOST = 256


class KnownOptions:
    """Reads options as :func:`decoding_options` does, which takes a tenth of the time of a call."""

    def __init__(self) -> None:
        """Knows none."""
        self._known: WeakKeyDictionary[ServedModel, dict[bytes, DecodingOptions]] = (
            WeakKeyDictionary()
        )

    def read(self, model: ServedModel, options: Options) -> DecodingOptions:
        """Checks options and fills in the model's defaults.

        Raises:
            InvalidRequest: One is unknown or out of its bounds, or they contradict each other.
        """
        known = self._known.setdefault(model, {})
        sent = options.SerializeToString()
        found = known.get(sent)
        if found is None:
            engine = model.engine
            found = decoding_options(options, model.manifest, model.tokenizer, engine.max_rows)
            # A seed that the caller leaves to chance is another one each time.
            if len(sent) <= _LONGEST and found.sampling is None:
                if len(known) >= _MOST:
                    known.clear()
                known[sent] = found
        return found
