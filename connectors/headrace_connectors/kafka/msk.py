"""AWS_MSK_IAM: tokens that AWS's signer makes from the credentials of the environment, for Amazon MSK.

MSK accepts them with the mechanism OAUTHBEARER on the port of AWS_MSK_IAM. The signer is the extra ``msk``.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

from headrace.core.model.errors import ConfigError, HeadraceError, Retriable
from headrace_connectors.kafka.jaas import LOGIN, LoginModule
from headrace_connectors.kafka.tokens import RefreshWindow, TokenProvider
from headrace_connectors.tokens import Token

MECHANISM = "AWS_MSK_IAM"
_SIGNER = "aws_msk_iam_sasl_signer"
_HOST = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?(?::\d+)?$")
_WINDOW = RefreshWindow(factor=0.8, jitter=0.05, period=60, buffer=300)
_ADVICE = "allow kafka-cluster:Connect for the AWS identity of the worker"
_OPTIONS = ("awsProfileName", "awsRoleArn", "awsRoleSessionName", "awsStsRegion", "awsDebugCreds")
"""The options of AWS's ``IAMLoginModule``. The last two have no effect."""


def is_msk(address: str) -> bool:
    """Return whether an address of ``bootstrap.servers`` is one of Amazon MSK."""
    return _HOST.search(address.strip()) is not None


def msk_tokens(properties: Mapping[str, str], module: LoginModule) -> TokenProvider:
    """Return the tokens of a client. Clients with equal properties share them. Raises ConfigError."""
    if importlib.util.find_spec(_SIGNER) is None:
        raise ConfigError(
            f"sasl.mechanism: {MECHANISM} needs a package that is not installed; install it with "
            "pip install 'headrace[msk]'",
            "sasl.mechanism",
        )
    unknown = sorted(set(module.options) - set(_OPTIONS))
    if unknown:
        raise ConfigError(f"{LOGIN}: {unknown[0]} is not an option of the IAMLoginModule; remove it", LOGIN)
    region = _region(properties.get("bootstrap.servers", ""))
    names = (module.options.get(name) for name in ("awsProfileName", "awsRoleArn", "awsRoleSessionName"))
    return _provider(MskTokens(region, *names))


@lru_cache(maxsize=16)
def _provider(source: MskTokens) -> TokenProvider:
    return TokenProvider(source, _WINDOW, advice=_ADVICE)


def _region(servers: str) -> str:
    """Return the region in the brokers' names, else that of the environment. Raises ConfigError."""
    for address in servers.split(","):
        if found := _HOST.search(address.strip()):
            return found[1]
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if not region:
        raise ConfigError(
            "bootstrap.servers: contains no AWS region; use the names that MSK shows, or set the environment variable "
            "AWS_REGION",
            "bootstrap.servers",
        )
    return region


@dataclass(frozen=True, slots=True)
class MskTokens:
    """Signed requests for the action kafka-cluster:Connect, which MSK accepts as tokens for 15 minutes."""

    region: str
    profile: str | None = None
    role: str | None = None
    role_session: str | None = None
    name: ClassVar[str] = "AWS credentials"

    def fetch(self) -> Token:
        """Sign a token. Raises ConfigError without credentials, Retriable if AWS does not give them."""
        signer = importlib.import_module(f"{_SIGNER}.MSKAuthTokenProvider")
        try:
            text, ends_ms = self._signed(signer)
        except Exception as error:  # botocore's errors have no common base that needs no import of it
            raise _failure(error) from error
        return Token(text, time.time(), ends_ms / 1000)

    def _signed(self, signer: Any) -> tuple[str, int]:
        made: tuple[str, int]
        if self.role:
            made = signer.generate_auth_token_from_role_arn(self.region, self.role, self.role_session or "headrace")
        elif self.profile:
            made = signer.generate_auth_token_from_profile(self.region, self.profile)
        else:
            made = signer.generate_auth_token(self.region)
        return made


def _failure(error: Exception) -> HeadraceError:
    name = type(error).__name__
    if isinstance(error, ValueError) or name in ("NoCredentialsError", "ProfileNotFound", "PartialCredentialsError"):
        return ConfigError(
            f"{LOGIN}: AWS credentials are missing ({name}); give the worker a role, or set awsProfileName or "
            "awsRoleArn",
            LOGIN,
        )
    return Retriable(
        f"{MskTokens.name}: cannot be fetched: {name}; check the role of the worker and the network to AWS"
    )
