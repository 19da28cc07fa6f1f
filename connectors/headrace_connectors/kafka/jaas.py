"""The property ``sasl.jaas.config``: one login module with its options. Messages never contain its text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.core.model.errors import ConfigError

LOGIN = "sasl.jaas.config"
_OPTION = re.compile(r"""([\w.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"'][^\s;]*))""")


@dataclass(frozen=True, slots=True)
class LoginModule:
    """The options of a login module."""

    options: Mapping[str, str] = field(repr=False)

    @classmethod
    def of(cls, text: str) -> LoginModule:
        """Parse the property. The name of the module is not verified: the mechanism decides what it needs."""
        options = {name: next(filter(None, values), "") for name, *values in _OPTION.findall(text)}
        return cls({name: re.sub(r"\\(.)", r"\1", value) for name, value in options.items()})

    def user_and_password(self) -> tuple[str, str]:
        """Return the user and the password. Raises ConfigError."""
        if "username" not in self.options or "password" not in self.options:
            raise ConfigError(f'{LOGIN} needs a login module with username="…" and password="…"', LOGIN)
        return self.options["username"], self.options["password"]
