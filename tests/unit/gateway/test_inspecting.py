"""What reading inside TLS needs: which files a trial is shown, and which servers are trusted."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from pathlib import Path

import pytest
from inspection_builder import OUTSIDE

from policies.types import NetworkPolicy
from supervisor.errors import PolicyError
from supervisor.prepare.inspected import BUNDLE, CERTIFICATE, VARIABLES, prepare_inspection

NOW = datetime.now(UTC)


def test_the_trial_trusts_the_run_beside_the_hosts_list(tmp_path: Path) -> None:
    """The bundle has the run's certificate last, and programs are told of it; each run has its own."""
    made = prepare_inspection(NetworkPolicy(inspect=True), run="r", cwd=tmp_path, now=NOW)
    files = dict(made.files)
    certificate = files[CERTIFICATE.encode()]
    assert files[BUNDLE.encode()].endswith(certificate)
    assert set(made.variables) == set(VARIABLES)
    assert set(made.variables.values()) == {CERTIFICATE, BUNDLE}
    context = ssl.create_default_context(cadata=files[BUNDLE.encode()].decode())
    assert context.get_ca_certs()
    assert b"PRIVATE" not in b"".join(files.values())
    again = prepare_inspection(NetworkPolicy(inspect=True), run="r", cwd=tmp_path, now=NOW)
    assert dict(again.files)[CERTIFICATE.encode()] != certificate


def test_trusted_files_are_relative_to_the_caller(tmp_path: Path) -> None:
    """Their certificates vouch for servers."""
    (tmp_path / "ca.pem").write_bytes(OUTSIDE.certificate)
    made = prepare_inspection(NetworkPolicy(inspect=True, trust=("ca.pem",)), run="r", cwd=tmp_path, now=NOW)
    subjects = [one["subject"] for one in made.gateway.upstream(()).get_ca_certs()]
    assert ((("commonName", "supervise outside"),),) in subjects
    assert made.gateway.upstream(()) is made.gateway.upstream(())


@pytest.mark.parametrize("content", [None, b"", b"no certificate", b"\xff", b"-----BEGIN CERTIFICATE-----\nAA==\n"])
def test_what_is_no_certificate_is_refused(tmp_path: Path, content: bytes | None) -> None:
    """The error names the key and the file."""
    if content is not None:
        (tmp_path / "ca.pem").write_bytes(content)
    with pytest.raises(PolicyError, match=r"ca\.pem") as caught:
        prepare_inspection(NetworkPolicy(inspect=True, trust=("ca.pem",)), run="r", cwd=tmp_path, now=NOW)
    assert caught.value.place == "network.trust[0]"
