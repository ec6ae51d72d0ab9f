import json
from collections.abc import Iterator

import pytest

from seqserve.address import servers_of
from seqserve.command.main import main

from ..fake_server import FakeServer


def test_folder_of_a_server_is_no_option_of_the_list(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SEQSERVE_GLOSSARIES", "/glossaries")
    assert main(["models", "--target", "127.0.0.1:1", "--max-attempts", "1"]) == 1
    assert "Connection refused" in capsys.readouterr().err


@pytest.fixture
def servers(server: FakeServer) -> Iterator[tuple[FakeServer, FakeServer]]:
    other = FakeServer()
    yield server, other
    other.stop()


@pytest.mark.parametrize("scheme", ["", "ipv4:"])
def test_several_servers_are_asked_and_named(
    scheme: str, servers: tuple[FakeServer, FakeServer], capsys: pytest.CaptureFixture[str]
) -> None:
    names = [scheme + server.target for server in servers]
    target = ("--target", scheme + ", ".join(server.target for server in servers))
    assert main(["models", *target]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line[:-1] for line in lines if line.endswith(":")] == names
    assert sum(line.startswith("NAME") for line in lines) == len(names)
    assert main(["models", "--json", *target]) == 0
    named = [json.loads(line)["server"] for line in capsys.readouterr().out.splitlines()]
    assert list(dict.fromkeys(named)) == names


@pytest.mark.parametrize("weight", ["5", "5=x", "5=1=2", "="])
def test_a_wrong_weight_is_told_an_example(weight: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "traffic", "en-de", "1=9", weight]) == 2
    told = f"weights: {weight!r} is not VERSION=WEIGHT, two whole numbers, such as 5=1"
    assert told in capsys.readouterr().err
    assert main(["models", "traffic", "en-de", "5=1", "5=2"]) == 2
    assert "weights: a version has more than one" in capsys.readouterr().err


def test_commas_of_other_schemes_divide_nothing() -> None:
    assert servers_of("a:1, b:2") == ["a:1", "b:2"]
    assert servers_of("ipv6:[::1]:1,[::2]:2") == ["ipv6:[::1]:1", "ipv6:[::2]:2"]
    for one in ("unix:/run/a,b.sock", "dns:///a:1", "localhost:1"):
        assert servers_of(one) == [one]


def test_several_servers_change_alike_or_not_at_all(
    servers: tuple[FakeServer, FakeServer], capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = servers
    argv = ["models", "--max-attempts", "1", "traffic"]
    assert main([*argv, "capitals", "1=9", "--target", f"{first.target},127.0.0.1:1"]) == 1
    assert first.requests == []
    both = ("--target", f"{first.target},{second.target}")
    assert main([*argv, "capitals", "1=9", *both]) == 0
    assert [dict(server.requests[0].weights) for server in servers] == [{1: 9}] * 2
    assert main([*argv, "missing", "1=9", *both]) == 1
    assert f"That is what {first.target} says" in capsys.readouterr().err
