"""The addresses of `seqserve playground`."""

from __future__ import annotations

import socket

import pytest

from seqserve.errors import OptionError
from seqserve_gateway.playground import main


@pytest.mark.parametrize("address", ["8080", "localhost", ":8080", "[::1]:x", "localhost:99999"])
def test_malformed_address_is_refused_by_its_flag(address: str) -> None:
    with pytest.raises(OptionError, match=r"--listen: .* is not host:port"):
        main(["--listen", address])


def test_malformed_target_is_refused_before_the_page_is_there() -> None:
    with pytest.raises(OptionError, match="target: 'nowhere' is not host:port"):
        main(["--target", "nowhere", "--listen", "127.0.0.1:0"])


def test_taken_address_is_refused_by_its_flag() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OptionError, match=r"--listen: .* cannot be had"):
            main(["--listen", f"127.0.0.1:{port}"])
