"""The certificate authority of one run: it vouches for every server that the trial may reach, inside the trial only.

In: names. Out: TLS contexts that answer as those names. The key of the authority is made for one run, lives in memory,
and is gone with it; only its certificate is given to the trial. Leaf certificates are for one name, or one address.
"""

from __future__ import annotations

import os
import ssl
from collections import OrderedDict
from datetime import datetime, timedelta
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from policies.addresses import parse_address

LIFETIME = timedelta(days=30)
"""Longer than any trial; the certificates are of no use after it."""
_SKEW = timedelta(days=1)
_MAX_CONTEXTS = 1024
_MAX_COMMON_NAME = 64


class Authority:
    """Makes certificates for one run.

    Attributes:
        certificate: of the authority itself, PEM; what the trial is given.
    """

    def __init__(self, run: str, *, now: datetime) -> None:
        """Make the key and the certificate.

        Args:
            run: the run's id, for people who look at the certificate.
            now: aware; certificates are valid from a day before it.
        """
        self._now = now
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._leaf_key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(f"supervise {run}")
        made = (
            self._builder(self._name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs=True), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.certificate = made.public_bytes(serialization.Encoding.PEM)
        self._contexts: OrderedDict[tuple[str, str | None], ssl.SSLContext] = OrderedDict()

    def context(self, host: str, protocol: str | None) -> ssl.SSLContext:
        """Give a context that answers as a host (a name or an address) and agrees on a protocol (ALPN), or on none."""
        key = (host, protocol)
        found = self._contexts.get(key)
        if found is None:
            found = self._contexts[key] = self._make_context(host, protocol)
            if len(self._contexts) > _MAX_CONTEXTS:
                self._contexts.popitem(last=False)
        self._contexts.move_to_end(key)
        return found

    def _make_context(self, host: str, protocol: str | None) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        # A session of one connection is not taken up by another: each is decided, and recorded, by itself.
        context.num_tickets = 0
        context.options |= ssl.OP_NO_TICKET
        if protocol is not None:
            context.set_alpn_protocols([protocol])
        # The ssl module reads keys from files only; this one has no name, and no other process can open it.
        descriptor = os.memfd_create("certificate", os.MFD_CLOEXEC)
        try:
            os.write(descriptor, self._leaf(host))
            context.load_cert_chain(f"/proc/self/fd/{descriptor}")
        finally:
            os.close(descriptor)
        return context

    def _leaf(self, host: str) -> bytes:
        """Make the certificate of a host: PEM, with its key and the authority's certificate."""
        subject = x509.IPAddress(ip_address(host)) if parse_address(host) is not None else x509.DNSName(host)
        made = (
            self._builder(_name(host), self._leaf_key)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(x509.SubjectAlternativeName([subject]), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        key = self._leaf_key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return key + made.public_bytes(serialization.Encoding.PEM) + self.certificate

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        public = key.public_key()
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(self._now - _SKEW)
            .not_valid_after(self._now + LIFETIME)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:_MAX_COMMON_NAME])])


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )
