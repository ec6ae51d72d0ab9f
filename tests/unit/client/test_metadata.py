from typing import Any

import pytest

from seqserve.errors import InvalidArgument
from seqserve.metadata import checked_metadata


def test_valid_metadata_is_unchanged() -> None:
    given = [("x-request-id", "a b~"), ("a_b.c-1", ""), ("trace-bin", b"\x00\xff")]
    assert checked_metadata(iter(given)) == tuple(given)
    assert checked_metadata([]) == ()


@pytest.mark.parametrize(
    "key", ["X-Request-Id", "", ":path", "a b", "a\n", "grüße", "a/b", 5, b"a"]
)
def test_a_key_that_grpc_does_not_send(key: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"^INVALID_ARGUMENT: metadata: the key .* must have"):
        checked_metadata([("sound", "a"), (key, "a")])


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("x", "a\nsecret"),
        ("x", "secrét"),
        ("x", "\x7f"),
        ("x", 5),
        ("x", b"a"),
        ("x-bin", "secret"),
    ],
)
def test_an_error_does_not_show_the_value(key: str, value: Any) -> None:
    with pytest.raises(InvalidArgument, match=f"metadata: the value of '{key}' must be") as refused:
        checked_metadata([(key, value)])
    assert refused.value.field == "metadata"
    assert "secr" not in str(refused.value)


@pytest.mark.parametrize("given", [None, 5, "ab", ["ab"], {"ab": "c"}, [("a", "b", "c")], [None]])
def test_anything_but_a_list_of_pairs_is_refused(given: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"metadata: .* is not a (list|pair)"):
        checked_metadata(given)
