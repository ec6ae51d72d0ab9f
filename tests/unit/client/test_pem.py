"""Files of certificates: valid ones are read, errors name invalid ones."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from tests.certificates import Certificates

from seqserve.errors import OptionError
from seqserve.tls import read_authorities, read_pair

NAMES = ("--cert", "--key")


def test_both_files_are_read(certificates: Certificates) -> None:
    certificate, key = certificates.server
    assert read_pair(certificate, key, NAMES) == (certificate.read_bytes(), key.read_bytes())
    assert read_authorities(certificates.ca, "--ca") == certificates.ca.read_bytes()


@pytest.mark.parametrize("missing", [0, 1])
def test_a_missing_file_is_named(certificates: Certificates, tmp_path: Path, missing: int) -> None:
    pair = list(certificates.server)
    pair[missing] = tmp_path / "none"
    with pytest.raises(OptionError, match=rf"^{NAMES[missing]}: .*none cannot be read: No such"):
        read_pair(pair[0], pair[1], NAMES)


def test_a_key_of_another_certificate_is_refused(certificates: Certificates) -> None:
    with pytest.raises(OptionError, match=r"^--cert, --key: .* are no certificate and its key"):
        read_pair(certificates.server[0], certificates.client[1], NAMES)


@pytest.mark.parametrize("length", [0, 1, 100, -30])
def test_half_a_file_is_refused(certificates: Certificates, tmp_path: Path, length: int) -> None:
    certificate, key = certificates.server
    half = tmp_path / "half.pem"
    half.write_bytes(certificate.read_bytes()[:length])
    with pytest.raises(OptionError, match=r"^--cert, --key: "):
        read_pair(half, key, NAMES)
    with pytest.raises(OptionError, match=r"^--ca: .* holds no certificate in PEM"):
        read_authorities(half, "--ca")


def test_an_encrypted_key_is_refused_without_a_prompt(
    certificates: Certificates, tmp_path: Path
) -> None:
    certificate, key = certificates.server
    encrypted = tmp_path / "encrypted.key"
    command = ["openssl", "pkey", "-in", key, "-aes256", "-passout", "pass:x", "-out", encrypted]
    subprocess.run(command, check=True, capture_output=True)
    with pytest.raises(OptionError, match=rf"^--key: {re.escape(str(encrypted))} is encrypted"):
        read_pair(certificate, encrypted, NAMES)


def test_errors_do_not_show_the_key(certificates: Certificates) -> None:
    key = certificates.server[1]
    with pytest.raises(OptionError) as caught:
        read_pair(key, key, NAMES)
    secret = key.read_text().splitlines()[1]
    assert secret not in str(caught.value)
