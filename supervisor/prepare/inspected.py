"""What a trial whose TLS is read gets: an authority of its own, and the files and variables by which programs trust it.

In: the policy and the host's list of authorities. Out: `Inspection`. The authority's key stays in memory; the trial is
shown certificates only, and nothing of the host's own list is changed.
"""

from __future__ import annotations

import os
import ssl
from datetime import datetime
from pathlib import Path

from policies.types import NetworkPolicy
from probes.gateway.authority import Authority
from probes.gateway.inspecting import Inspecting
from supervisor.errors import PolicyError
from supervisor.values import dataclass

CERTIFICATE = "/run/supervise-ca.pem"
"""The run's authority alone, as the trial sees it."""
BUNDLE = "/run/supervise-ca-bundle.pem"
"""The same after the host's own authorities."""
VARIABLES = {
    "SSL_CERT_FILE": BUNDLE,
    "REQUESTS_CA_BUNDLE": BUNDLE,
    "CURL_CA_BUNDLE": BUNDLE,
    "GIT_SSL_CAINFO": BUNDLE,
    "AWS_CA_BUNDLE": BUNDLE,
    "NODE_EXTRA_CA_CERTS": CERTIFICATE,
    "DENO_CERT": CERTIFICATE,
}
"""What programs read beside the system's list or instead of it: OpenSSL, Go, curl, requests, git, node, deno."""
_SYSTEM_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/ssl/cert.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
)
"""Where distributions keep the list: Debian, Alpine, openSUSE, Fedora. Those that exist are shown with the run's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """What is needed to read inside TLS.

    Attributes:
        gateway: for the gateway's process.
        files: that the trial is shown: path and content.
        variables: of its environment.
    """

    gateway: Inspecting
    files: tuple[tuple[bytes, bytes], ...]
    variables: dict[str, str]


def prepare_inspection(network: NetworkPolicy, *, run: str, cwd: Path, now: datetime) -> Inspection:
    """Make a run's authority, and what goes with it.

    Args:
        network: of the policy.
        run: the run's id.
        cwd: of the caller, which the files of ``network.trust`` are relative to.
        now: aware.

    Raises:
        PolicyError: a file of ``network.trust`` cannot be read, or holds no certificate.
    """
    trusted = tuple(
        _read_certificates(cwd / name, place=f"network.trust[{index}]") for index, name in enumerate(network.trust)
    )
    authority = Authority(run, now=now)
    bundle = _host_bundle() + authority.certificate
    existing = (path for path in _SYSTEM_BUNDLES if Path(path).exists())
    files = {CERTIFICATE: authority.certificate, BUNDLE: bundle, **dict.fromkeys(existing, bundle)}
    return Inspection(
        gateway=Inspecting(run=run, authority=authority, trusted=trusted),
        files=tuple((os.fsencode(path), content) for path, content in files.items()),
        variables=dict(VARIABLES),
    )


def _read_certificates(path: Path, *, place: str) -> str:
    try:
        text = path.read_text(encoding="ascii")
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=text)
    except OSError as err:  # ssl's errors are some of these
        reason = err.strerror if err.filename else "it holds no certificate in PEM"
        message = f"expected a file of certificates, got {str(path)!r}: {reason}"
        raise PolicyError(message, place=place) from err
    except (UnicodeDecodeError, ValueError) as err:
        message = f"expected a file of certificates in PEM, got {str(path)!r}"
        raise PolicyError(message, place=place) from err
    return text


def _host_bundle() -> bytes:
    """Read the host's own list, empty when it has none where lists usually are."""
    usual = ssl.get_default_verify_paths()
    for place in (usual.cafile, *_SYSTEM_BUNDLES):
        if place is not None and Path(place).is_file():
            return Path(place).read_bytes().rstrip(b"\n") + b"\n"
    return b""
