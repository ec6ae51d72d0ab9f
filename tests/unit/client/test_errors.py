import pickle

import pytest

from seqserve import errors


@pytest.mark.parametrize("kind", [errors.CallError, errors.Overloaded, errors.InvalidArgument])
def test_a_call_error_survives_pickling(kind: type[errors.CallError]) -> None:
    error = kind("CODE", "it broke", field="source", retry_after_s=1.5, request_id="mine-1")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert vars(copy) == vars(error)
    assert str(copy) == "CODE: it broke"
