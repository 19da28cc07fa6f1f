"""Extension points: what other installed packages may add to a worker, by entry points.

Headrace's own parts are imported where they are used. An entry point of a group ``headrace.<group>`` names a function
of another package, and the Protocol of the group declares what the function accepts and returns. Loading checks the
parameters of the function, and each call checks the object that it returns. So an error names the package and not a
line of Headrace.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from typing import Any, Generic, TypeVar, cast

from headrace.core.model.errors import ConfigError

F = TypeVar("F", bound=Callable[..., object])
"""The Protocol of a group's functions."""


@dataclass(frozen=True, slots=True)
class ExtensionPoint(Generic[F]):
    """A group of functions by name: Headrace's (``built_in``), and those of entry points under other names.

    ``parameters`` is the number of arguments that each function accepts. Each function returns an object with all
    members of the Protocol ``returns``.
    """

    group: str
    parameters: int
    returns: type[Any] = object
    built_in: Mapping[str, F] = field(default_factory=dict)

    def names(self) -> list[str]:
        """Return the names of all functions. Loads none."""
        return sorted({*self.built_in, *_entry_points(self.group).names})

    def load(self, name: str) -> F:
        """Return the function with a name. Raises ConfigError if it is not installed, or does not fit the Protocol."""
        if name in self.built_in:
            return self.built_in[name]
        points = _entry_points(self.group)
        if name not in points.names:
            available = ", ".join(self.names()) or "none"
            raise ConfigError(f"The {self.group} plug-in {name!r} is not installed; use one of: {available}")
        return self._load_entry_point(points[name])

    def load_all(self) -> dict[str, F]:
        """Return all functions by name. Raises ConfigError if one of them does not fit the Protocol."""
        return {name: self.load(name) for name in self.names()}

    def unusable(self, name: str, problem: str) -> ConfigError:
        """Return the error that reports a ``problem`` of the entry point ``name`` with its package."""
        point = _entry_points(self.group)[name]
        package = f"{point.dist.name} {point.dist.version}" if point.dist is not None else "an unknown package"
        return ConfigError(
            f"entry point {name!r} of headrace.{self.group} ({point.value}, package {package}): {problem}; correct the "
            "package, or remove it from this worker"
        )

    def _load_entry_point(self, point: EntryPoint) -> F:
        try:
            function = point.load()
        except Exception as error:  # whatever the package raises at its import
            raise self.unusable(point.name, f"it cannot be loaded: {type(error).__name__}: {error}") from error
        if not callable(function) or not _accepts(function, self.parameters):
            raise self.unusable(point.name, f"it is no function that accepts {self.parameters} argument(s)")
        members = _members(self.returns)

        def call(*arguments: object) -> object:
            returned = function(*arguments)
            if missing := [member for member in members if not hasattr(returned, member)]:
                raise self.unusable(
                    point.name,
                    f"it returned an object of type {type(returned).__name__} without {', '.join(missing)}, "
                    f"which is no {self.returns.__module__}.{self.returns.__qualname__}",
                )
            return returned

        return cast(F, call)


def _accepts(function: Callable[..., object], parameters: int) -> bool:
    """Return whether the function can be called with as many positional arguments. Does not call it."""
    try:
        inspect.signature(function).bind(*range(parameters))  # the values do not matter
    except ValueError:  # a function in C may have no signature
        return True
    except TypeError:
        return False
    return True


def _members(protocol: type[Any]) -> list[str]:
    """Return the methods and attributes that a Protocol declares."""
    # typing.get_protocol_members exists only since Python 3.13.
    declared = [vars(base) for base in protocol.__mro__ if getattr(base, "_is_protocol", False)]
    names = {name for members in declared for name in (*members, *members.get("__annotations__", ()))}
    return sorted(name for name in names if not name.startswith("_") or name == "__call__")


@cache
def _entry_points(group: str) -> EntryPoints:
    """Return the entry points of ``headrace.<group>``. Cached, because a search reads the metadata of all packages."""
    return entry_points(group=f"headrace.{group}")
