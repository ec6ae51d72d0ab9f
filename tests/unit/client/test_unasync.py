"""The blocking client is generated from the asyncio client and is up to date."""

import inspect

import pytest
from clients.python import unasync

from seqserve import AsyncClient, Client


def test_the_generated_files_are_up_to_date() -> None:
    found = {path: path.read_text() for path in unasync.TARGETS.glob("*.py")}
    assert found == unasync.generated()


def test_both_clients_have_the_same_methods_with_the_same_parameters() -> None:
    def methods(client: type) -> dict[str, list[str]]:
        functions = inspect.getmembers(client, inspect.isfunction)
        return {name: list(inspect.signature(value).parameters) for name, value in functions}

    names = {"__aenter__": "__enter__", "__aexit__": "__exit__"}
    expected = {names.get(name, name): value for name, value in methods(AsyncClient).items()}
    assert methods(Client) == expected
    assert {"__enter__", "generate_bulk", "load_model"} <= expected.keys()


def test_nothing_of_asyncio_is_left() -> None:
    for path, text in unasync.generated().items():
        code = text.partition("\n")[2].lower()
        assert not [word for word in ("await", "async", "task") if word in code], path


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("async with aclosing(x) as y:\n    await y.z()\n", "with closing(x) as y:\n    y.z()\n"),
        (
            "def f() -> AsyncGenerator[T[int], None]: ...\n",
            "def f() -> Generator[T[int], None, None]: ...\n",
        ),
        ("x: Iterable[A] | AsyncIterable[A]\n", "x: Iterable[A]\n"),
        ("x: Callable[[A], Coroutine[Any, Any, R]]\n", "x: Callable[[A], R]\n"),
        ("from a._async.b import AsyncC\n", "from a._sync.b import C\n"),
        ('x = "Tasks await a task."  # await it\n', 'x = "Threads a thread."  # it\n'),
    ],
)
def test_source_becomes_synchronous(source: str, expected: str) -> None:
    assert unasync.synchronous(source) == expected


def test_a_sentence_that_no_source_has_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(unasync.SENTENCES, "Nobody wrote this.", "")
    with pytest.raises(ValueError, match="Nobody wrote this"):
        unasync.generated()
