"""Make a self-signed certificate for localhost, like those of servers on a company's network."""

import ssl
import subprocess
from pathlib import Path
from shutil import which

import pytest


def self_signed(folder: Path) -> tuple[ssl.SSLContext, Path]:
    """Return the server's TLS context and the PEM file that a client must trust; skip the test without openssl."""
    if which("openssl") is None:
        pytest.skip("needs the openssl command to make a certificate")
    key, certificate = folder / "key.pem", folder / "cert.pem"
    names = ["-keyout", key, "-out", certificate]
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    command = ["openssl", "req", "-x509", *curve, "-nodes", "-days", "1", *names, *subject]
    subprocess.run(command, check=True, capture_output=True)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    return context, certificate
