"""Which version serves the call at hand."""

from __future__ import annotations

from seqserve_server.contract.errors import Draining
from seqserve_server.front.models.repository import Repository, ServedModel
from seqserve_server.front.telemetry.call_record import current


def model_of_call(repository: Repository, name: str, version: int) -> ServedModel:
    """Finds the version that a call means and keeps it loaded until the call has ended.

    What is unloaded meanwhile finishes it first, be it a stream or a batch that has yet to submit;
    and a call that asks again gets the version that it has.

    Args:
        repository: The models.
        name: Of the model; empty for the default.
        version: 0 for one that traffic chooses, by the id of the call.

    Raises:
        Draining: The server shuts down; a call that has its version goes on.
        ModelNotFound: There is none.
        ModelUnavailable: It is not ready, but may soon be.
        ModelNotLoaded: It is not ready, and waiting does not help.
    """
    record = current.get()
    kept = record.kept_of(name or repository.default, version)
    model = kept or repository.resolve(name, version, record.request_id)
    record.model = model.manifest.name
    if kept is None:
        if repository.is_closed:
            raise Draining("the server is shutting down; call another one")
        record.keep(model)
    return model
