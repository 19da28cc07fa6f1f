"""What a worker lends to all of its tasks."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.ports import OpenAgent
from headrace.runtime.task.memory_budget import MemoryBudget
from headrace.runtime.task.write_slots import WriteSlots
from headrace.runtime.threads import WorkerThreads


@dataclass(frozen=True, slots=True)
class TaskResources:
    """Threads, the slots of the writing ones, the memory for changes that are not durable, and agents."""

    threads: WorkerThreads
    slots: WriteSlots
    memory: MemoryBudget
    open_agent: OpenAgent
