"""Threads that do one thing each, all at the same time, again and again: one for each replica of a model."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any

from benchmarking.runtimes import TOKEN, Mark

Task = Callable[[], Any]


class Crew:
    """Waiting threads, one to a replica. Threads and not processes: the weights are loaded once, and what the lock of
    the interpreter costs them is part of what data parallelism in one process costs."""

    def __init__(self, size: int) -> None:
        self._tasks: list[SimpleQueue[Task | None]] = [SimpleQueue() for _ in range(size)]
        self._done: SimpleQueue[tuple[int, Any, BaseException | None]] = SimpleQueue()
        for index in range(size):
            threading.Thread(target=self._work, args=(index,), name=f"replica-{index}", daemon=True).start()

    def run(self, tasks: Sequence[Task]) -> list[Any]:
        """What the tasks gave, in their order, once all are done. Raises what the first of them raised, but rather than
        that it was left waiting at a mark, what another one raised."""
        for queue, task in zip(self._tasks, tasks, strict=True):
            queue.put(task)
        ended = sorted((self._done.get() for _ in tasks), key=lambda one: one[0])
        errors = [error for _, _, error in ended if error is not None]
        if errors:
            raise next((error for error in errors if not isinstance(error, threading.BrokenBarrierError)), errors[0])
        return [result for _, result, _ in ended]

    def close(self) -> None:
        """End the threads."""
        for queue in self._tasks:
            queue.put(None)

    def _work(self, index: int) -> None:
        while (task := self._tasks[index].get()) is not None:
            try:
                self._done.put((index, task(), None))
            except BaseException as error:  # noqa: BLE001 - it is raised again where `run` was called
                self._done.put((index, None, error))


class JoinedMarks:
    """The marks of replicas that run at the same time as those of one call: each counts when the last one has come to
    it. At the end of a phase the replicas wait for each other, since that mark waits for the devices; at a token they
    do not."""

    def __init__(self, mark: Mark, replicas: int) -> None:
        self._mark = mark
        self._replicas = replicas
        self._lock = threading.Lock()
        self._tokens = [0] * replicas
        self._reached = 0
        self._phase = ""
        self._barrier = threading.Barrier(replicas, action=self._end_phase)

    def of(self, replica: int) -> Mark:
        """The mark that a replica calls."""

        def mark(name: str) -> None:
            if name == TOKEN:
                self._token(replica)
            else:
                self._phase = name
                self._barrier.wait()

        return mark

    def abort(self) -> None:
        """Let nobody wait for a replica that will not come."""
        self._barrier.abort()

    def _token(self, replica: int) -> None:
        with self._lock:
            self._tokens[replica] += 1
            if min(self._tokens) > self._reached:
                self._reached += 1
                self._mark(TOKEN)

    def _end_phase(self) -> None:
        self._mark(self._phase)
