"""A damaged file counts as permanent after several attempts over some time."""

from __future__ import annotations

from headrace.core.model.errors import DamagedFile, Retriable
from headrace.runtime.retry import DAMAGE_ATTEMPTS, DAMAGE_SECONDS, LastingDamage

DAMAGE = DamagedFile("damaged", "/w/x.parquet")


def test_damage_is_permanent_after_attempts_and_time() -> None:
    """Neither many attempts within a moment nor two in a long time are enough."""
    damage = LastingDamage()
    assert not any(damage.lasts(DAMAGE, 0.0) for _ in range(2 * DAMAGE_ATTEMPTS))
    assert damage.lasts(DAMAGE, DAMAGE_SECONDS)
    damage.begin()
    assert not damage.lasts(DAMAGE, DAMAGE_SECONDS)
    assert not damage.lasts(DAMAGE, 10 * DAMAGE_SECONDS)


def test_another_error_begins_the_count_anew() -> None:
    """A storage that does not answer shows nothing about its files."""
    damage = LastingDamage()
    for attempt in range(DAMAGE_ATTEMPTS):
        assert not damage.lasts(DAMAGE, DAMAGE_SECONDS * attempt / DAMAGE_ATTEMPTS)
    assert not damage.lasts(Retriable("away"), DAMAGE_SECONDS)
    assert not damage.lasts(DAMAGE, 2 * DAMAGE_SECONDS)
