"""The URL of the server and the key of the caller, checked before the first call."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

_DEFAULT_PORT = 50051
# The characters that a header of HTTP and the metadata of gRPC can have.
_HEADER_TEXT = re.compile(r"[\x20-\x7e]*")


def server_url(text: str) -> str:
    """Returns the URL of a server. Accepts `host:port` too, as the command line does."""
    text = text.strip()
    scheme, separator, rest = text.partition("://")
    # The schemes of URLs are case-insensitive, and the transport is selected by the scheme.
    url = f"{scheme.lower()}://{rest}" if separator else f"http://{text}"
    expected = "Write http://host:port, or https, grpc or grpcs in place of http."
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"Invalid URL of the server {text!r}: {error}. {expected}") from None
    is_known = parts.scheme in ("http", "https", "grpc", "grpcs") and parts.hostname and not parts.netloc.endswith(":")
    # A URL of HTTP can have the path of a proxy. An address has none, so `http:/host` is no address.
    has_path = not separator and parts.path not in ("", "/")
    if not is_known or has_path or parts.query or parts.fragment or re.search(r"\s", url):
        raise ValueError(f"Invalid URL of the server {text!r}. {expected}")
    if not separator and port is None:
        return parts._replace(netloc=f"{parts.netloc}:{_DEFAULT_PORT}").geturl()
    return url


def credential(text: str) -> str:
    """Returns an API key or JWT without white space around it, such as the line break of a file."""
    key = text.strip()
    if not _HEADER_TEXT.fullmatch(key):
        # Errors are logged, so this one does not contain the key.
        raise ValueError("Invalid API key: it contains a line break or another character that a header cannot have.")
    return key
