import asyncio
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette

from seqserve.address import channel_options
from seqserve.errors import OptionError
from seqserve.processes import Share
from seqserve_gateway import listener
from seqserve_gateway.admission import MAX_MEMORY_BYTES
from seqserve_gateway.command import GatewayOptions, main, serve
from seqserve_gateway.endpoint import Gateway
from seqserve_gateway.protocol import MAX_WAITING_BYTES, ListenerLimits


@pytest.mark.parametrize(
    ("argv", "reason"),
    [
        (["--host", "0.0.0.0"], "--host: other machines can reach 0.0.0.0"),
        (["--host", "example.com"], "--host: other machines"),
        (["--tls-key", "key.pem"], "--tls-certificate: is missing"),
        (["--tls-certificate", "a.pem"], "--tls-key: is missing"),
        (["--lend-token"], "--lend-token: needs a token"),
        (["--port", "65536"], "--port"),
        (["--target", "nowhere"], "target: 'nowhere' is not host:port"),
        (["--max-requests", "0"], "--max-requests"),
        (["--trusted-proxy", "lab"], "--trusted-proxy: 'lab' is not an address or a network"),
        (["--cors-origin", "a.com"], "--cors-origin: 'a.com' is not an origin, such as https://"),
        (["--cors-origin", "https://a.com/"], "--cors-origin: 'https://a.com/' is not an origin"),
        (["--public-url", "a.com"], "--public-url: 'a.com' is not a URL such as https://"),
        (["--processes", "0"], "--processes"),
        (["--processes", "4", "--max-requests", "3"], "--max-requests: 3 is less than --processes"),
        (
            ["--processes", "4", "--max-http-connections", "3"],
            "--max-http-connections: 3 is less than --processes, 4",
        ),
        (["--processes", "2", "--target", "nowhere"], "target: 'nowhere' is not host:port"),
        (["--timeout-s", "400"], "--timeout-s: 400 is more than --max-timeout-s"),
    ],
)
def test_wrong_option_is_refused_by_its_flag(argv: list[str], reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        main(["--port", "0", *argv])


@pytest.mark.parametrize(
    ("argv", "reason"),
    [([], "add --lend-token"), (["--lend-token", "--target", "models.example.com:1"], "in clear")],
)
def test_token_that_is_of_no_use_or_would_cross_the_network_in_clear_is_refused(
    argv: list[str], reason: str, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("t1")
    with pytest.raises(OptionError, match=reason):
        main(["--port", "0", "--token-file", str(tmp_path / "token"), *argv])


def test_broken_certificate_is_refused_by_its_flag(tmp_path: Path) -> None:
    file = tmp_path / "broken.pem"
    file.write_text("no certificate")
    argv = ["--tls-certificate", str(file), "--tls-key", str(file)]
    with pytest.raises(OptionError, match="--tls-certificate"):
        main(["--port", "0", *argv])


def test_servers_that_are_away_are_tried_for_longer_than_a_client_takes_to_find_them() -> None:
    channel = dict(channel_options("localhost:1", 1))
    longest_s = 1.2e-3 * channel["grpc.max_reconnect_backoff_ms"]  # gRPC varies it by a fifth
    assert GatewayOptions().upstream()["retry"].away_timeout_s > longest_s
    assert GatewayOptions(max_attempts=1).upstream()["retry"].away_timeout_s == 0


def test_name_of_the_public_address_is_one_of_the_gateway() -> None:
    assert GatewayOptions(public_url="https://a.com:80/b").hosts() == ["127.0.0.1", "a.com"]


def test_processes_have_what_the_options_say_together(monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[tuple[Gateway, ListenerLimits]] = []

    def run(app: Starlette, _: Any, gateway: Gateway, limits: ListenerLimits, *rest: Any) -> None:
        served.append((gateway, limits))
        asyncio.run(closed(app))

    async def closed(app: Starlette) -> None:
        async with app.router.lifespan_context(app):
            pass

    monkeypatch.setattr(listener, "run", run)
    options = GatewayOptions(port=0, max_requests=10, max_http_connections=11)
    for processes in (1, 4):
        served.clear()
        for number in range(processes):
            serve(options, Share(number, processes))
        admissions = [gateway.admission for gateway, _ in served]
        assert sum(each._places.free for each in admissions) == 10
        assert sum(gateway.bodies.memory.free for gateway, _ in served) == MAX_MEMORY_BYTES
        assert sum(limits.max_connections for _, limits in served) == 11
        assert sum(limits.max_waiting_bytes for _, limits in served) == MAX_WAITING_BYTES
        texts = sum(gateway.upstream.turns._free for gateway, _ in served)
        assert texts == max(320, 128 * processes)  # A batch fits into each process.
