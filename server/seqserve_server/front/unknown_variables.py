"""Finds variables of the environment that look like options, but are none: probably misspelt."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping

from seqserve.command.generate import GenerateCommandOptions
from seqserve.options import variable_of
from seqserve_server.front.config import ServeOptions

_PREFIX = variable_of("")


def unknown_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Finds variables that neither the server nor a client reads, which may share an environment.

    Returns for each one the variable of the server that was probably meant; empty if none is
    similar.
    """
    ours = {field.name for field in dataclasses.fields(ServeOptions)}
    theirs = {field.name for field in dataclasses.fields(GenerateCommandOptions)}
    found = {}
    for variable in sorted(environ):
        name = variable.removeprefix(_PREFIX).lower()
        is_known = variable in map(variable_of, ours | theirs)
        # An empty variable counts as unset.
        if variable.startswith(_PREFIX) and environ[variable] and not is_known:
            # Without the prefix, which would make all names similar.
            near = difflib.get_close_matches(name, sorted(ours), n=1)
            found[variable] = variable_of(near[0]) if near else ""
    return found
