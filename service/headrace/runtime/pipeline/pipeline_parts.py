"""What every pipeline of a table is given: options, the post-processor, and somebody who measures its stages."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from headrace.core.model.events import Actions, Changes, TableId
from headrace.core.reselect.causes import Resolved


class PostProcessor(Protocol):
    """Fills the cells that the source left out (``post_processor.py``). Called in the table's thread."""

    def folded(self, changes: Changes, actions: Actions) -> None:
        """A batch was folded; the next call resolves what is left open."""

    def resolve(self, actions: Actions, *, divisible: bool = False) -> Actions:
        """The actions with every cell decided: VALUE, NULL, UNCHANGED (keep) or CARRIED.

        Raises UnresolvedRows for rows that may not be written so: they are left out, and the others come again; and
        TooLarge where a batch that is ``divisible`` needs too much memory.
        """

    def resolve_stored(self, actions: Actions, stored: npt.NDArray[np.bool_], *, divisible: bool = False) -> Resolved:
        """As ``resolve``, where ``stored`` marks the actions that have a stored row.

        The cells of others, which have nothing to keep, are read as those of new rows are. UNCHANGED means there that
        nothing supplies the cell.
        """

    def contradicted(self, table: TableId, kind: str, rows: int) -> None:
        """Rows show that events before them never came."""

    def committed(self, table: TableId) -> None:
        """The table commit of the last ``resolve`` is durable."""

    def failed(self, table: TableId) -> None:
        """It is not, and the batch comes again."""

    def truncated(self, table: TableId) -> None:
        """All rows of the table are gone."""


class Stages(Protocol):
    """Where the time goes: ``stages("fold")`` measures what its block does."""

    def __call__(self, stage: str) -> AbstractContextManager[None]:
        """Measure one stage of one batch."""


@dataclass(frozen=True, slots=True)
class PipelineOptions:
    """What the connector says about applying changes. Times in microseconds.

    ``shared``: the operator has named a key, so that several source tables may feed one table. ``unknown_null_mode``
    is for histories; in other tables the post-processor applies it.
    """

    unresolved_insert_mode: str = "auto"
    unknown_null_mode: str = "keep"
    evolve: bool = True
    position_regression: int = 3_600_000_000
    tombstone_retention: int = 7 * 86_400_000_000
    shared: bool = False
