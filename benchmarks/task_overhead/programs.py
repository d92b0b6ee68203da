"""The three task flows, written once for every system that has this API.

Each takes the context, its data and the number of tasks, and submits empty tasks. The timed part is the call;
everything that it needs was made before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

__all__ = ["PROGRAMS", "TOKENS", "Program", "token_plan"]

TOKENS = 64

# Contexts and data of several libraries go through here, one of them without type information.
Data = Any


@dataclass(frozen=True)
class Program:
    """Name a flow, what its data are and how it is submitted.

    Parameters
    ----------
    name : str
        The case of the record.
    buffers, tokens : int
        Number of arrays and of tokens that it works on.
    submit : callable
        ``submit(context, data, tasks)`` puts that many tasks into the flow.
    """

    name: str
    buffers: int
    tokens: int
    submit: Callable[[Data, list[Data], int], None]


def chain(context: Data, data: list[Data], tasks: int) -> None:
    """Submit tasks that all read and write the same array."""
    array = data[0]
    for _ in range(tasks):
        with context.task(array.rw()):
            pass


def two_dependencies(context: Data, data: list[Data], tasks: int) -> None:
    """Submit tasks that read one array and change another, and ask for what a launch needs."""
    source, target = data
    for _ in range(tasks):
        with context.task(source.read(), target.rw()) as task:
            task.stream_ptr()
            task.get_arg(0)
            task.get_arg(1)


@lru_cache(maxsize=4)
def token_plan(tasks: int) -> tuple[tuple[int | None, int], ...]:
    """Return the flow over tokens: for each task the token that it reads (or None) and the one it changes.

    In each round of 64 tasks one token is the hub. The first task changes the hub; of the others every second
    one reads the hub and changes a token of its own (fan-out), the rest only change their own (chains). The
    hub moves on by one each round; the last task of a round changes the hub of the round before, so it comes
    after all that read it. Kept between calls: the warm-up makes the list, not the timed part.
    """
    plan: list[tuple[int | None, int]] = []
    hub = 0
    while len(plan) < tasks:
        plan.append((None, hub))
        for step in range(1, TOKENS):
            plan.append((hub if step % 2 else None, (hub + step) % TOKENS))
        hub = (hub + 1) % TOKENS
    return tuple(plan[:tasks])


def tokens(context: Data, data: list[Data], tasks: int) -> None:
    """Submit the flow of `token_plan`."""
    for hub, own in token_plan(tasks):
        if hub is None:
            with context.task(data[own].rw()):
                pass
        else:
            with context.task(data[hub].read(), data[own].rw()):
                pass


PROGRAMS = (
    Program("chain", 1, 0, chain),
    Program("two_dependencies", 2, 0, two_dependencies),
    Program("tokens", 0, TOKENS, tokens),
)
