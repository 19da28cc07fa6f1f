"""Create an object on an S3 server only if it does not exist: what another writer of Delta's log does."""

from __future__ import annotations

import hashlib
import hmac
from datetime import UTC, datetime

import httpx

from headrace_dev.server import http


def create_object(url: str, content: bytes, access_key: str, secret_key: str, region: str) -> bool:
    """Store ``content`` at ``url`` (server, bucket and key); return False if there is an object.

    Raises HTTPStatusError. The request is signed by AWS's Signature Version 4.
    """
    target = httpx.URL(url)
    now = datetime.now(UTC)
    digest = hashlib.sha256(content).hexdigest()
    signed = {
        "host": target.netloc.decode(),
        "if-none-match": "*",
        "x-amz-content-sha256": digest,
        "x-amz-date": now.strftime("%Y%m%dT%H%M%SZ"),
    }
    names = ";".join(signed)
    lines = "".join(f"{name}:{value}\n" for name, value in signed.items())
    request = f"PUT\n{target.raw_path.decode()}\n\n{lines}\n{names}\n{digest}"
    scope = f"{now:%Y%m%d}/{region}/s3/aws4_request"
    text = f"AWS4-HMAC-SHA256\n{signed['x-amz-date']}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
    key = f"AWS4{secret_key}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.new(key, text.encode(), "sha256").hexdigest()
    authorization = f"AWS4-HMAC-SHA256 Credential={access_key}/{scope}, SignedHeaders={names}, Signature={signature}"
    answer = http.put(url, content=content, headers={**signed, "Authorization": authorization}, timeout=30)
    if answer.status_code == httpx.codes.PRECONDITION_FAILED:
        return False
    answer.raise_for_status()
    return True
