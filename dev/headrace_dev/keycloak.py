"""Keycloak in development mode: an OAuth provider with an embedded database, on 127.0.0.1 only."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import httpx

from headrace_dev import jars
from headrace_dev.server import LOOPBACK, Server, free_ports, http

_ADMIN, _PASSWORD = "admin", "admin"


class Keycloak:
    """One server. Its first start builds it, which takes a minute or more."""

    def __init__(self, root: Path, java: Path) -> None:
        [port] = free_ports(1)
        self.url = f"http://{LOOPBACK}:{port}"
        home = root / "keycloak"
        shutil.copytree(next(jars.unpacked("keycloak").iterdir()), home)
        environment = {
            "JAVA_HOME": str(java),
            "JAVA_OPTS_KC_HEAP": "-Xmx400m",
            "KC_BOOTSTRAP_ADMIN_USERNAME": _ADMIN,
            "KC_BOOTSTRAP_ADMIN_PASSWORD": _PASSWORD,
        }
        command = [str(home / "bin" / "kc.sh"), "start-dev", f"--http-port={port}", f"--http-host={LOOPBACK}"]
        self.server = Server("keycloak", command, home, environment=environment)

    def start(self) -> None:
        """Start and wait until the server answers."""
        self.server.start(self._answers, seconds=400)

    def stop(self) -> None:
        """End the process; its data are discarded."""
        self.server.kill()

    def create_client(self, realm: str, client: str, secret: str, audience: str, token_seconds: int) -> None:
        """Create a realm with a client whose tokens have an audience and end after a time."""
        self._admin("POST", "", {"realm": realm, "enabled": True, "accessTokenLifespan": token_seconds})
        mapper = {
            "name": "audience",
            "protocol": "openid-connect",
            "protocolMapper": "oidc-audience-mapper",
            "config": {"included.custom.audience": audience, "access.token.claim": "true"},
        }
        document = {"clientId": client, "secret": secret, "serviceAccountsEnabled": True, "protocolMappers": [mapper]}
        self._admin("POST", f"/{realm}/clients", document)

    def token_url(self, realm: str) -> str:
        """Return the URL of a realm's token endpoint."""
        return f"{self.url}/realms/{realm}/protocol/openid-connect/token"

    def keys(self, realm: str) -> Any:
        """Return the public keys of a realm."""
        return (
            http.get(f"{self.url}/realms/{realm}/protocol/openid-connect/certs", timeout=30).raise_for_status().json()
        )

    def _admin(self, method: str, path: str, document: object) -> None:
        form = {"grant_type": "password", "client_id": "admin-cli", "username": _ADMIN, "password": _PASSWORD}
        token = http.post(self.token_url("master"), data=form, timeout=60).raise_for_status().json()["access_token"]
        headers = {"Authorization": f"Bearer {token}"}
        url = f"{self.url}/admin/realms{path}"
        http.request(method, url, json=document, headers=headers, timeout=60).raise_for_status()

    def _answers(self) -> bool:
        try:
            return http.get(f"{self.url}/realms/master", timeout=5).is_success
        except httpx.TransportError:
            return False
