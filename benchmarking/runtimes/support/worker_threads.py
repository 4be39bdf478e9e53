"""Parallel calls in one process, on threads: replicas of a model, and several requests in flight."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count as numbers
from queue import SimpleQueue
from typing import Any

from benchmarking.core.contracts import Completion, Mark, Operation
from benchmarking.core.lazy_modules import np
from benchmarking.core.metrics import CustomMetric
from benchmarking.core.records import Json, Readings

Task = Callable[[], Any]


class WorkerThreads:
    """Waiting threads, one per worker. With threads instead of processes the weights are loaded once; the GIL's cost is
    part of the cost of parallel calls in one process."""

    def __init__(self, size: int) -> None:
        self._tasks: list[SimpleQueue[Task | None]] = [SimpleQueue() for _ in range(size)]
        self._done: SimpleQueue[tuple[int, Any, BaseException | None]] = SimpleQueue()
        for index in range(size):
            threading.Thread(target=self._work, args=(index,), name=f"worker-{index}", daemon=True).start()

    def run(self, tasks: Sequence[Task]) -> list[Any]:
        """The results of the tasks in order, once all have ended. Raises the first error; a broken barrier only if
        there is no other error."""
        for queue, task in zip(self._tasks, tasks, strict=True):
            queue.put(task)
        results = sorted((self._done.get() for _ in tasks), key=lambda one: one[0])
        errors = [error for _, _, error in results if error is not None]
        if errors:
            raise next((error for error in errors if not isinstance(error, threading.BrokenBarrierError)), errors[0])
        return [result for _, result, _ in results]

    def close(self) -> None:
        for queue in self._tasks:
            queue.put(None)

    def _work(self, index: int) -> None:
        while (task := self._tasks[index].get()) is not None:
            try:
                self._done.put((index, task(), None))
            except BaseException as error:  # noqa: BLE001 - `run` raises it again
                self._done.put((index, None, error))


class WorkersOperation(Operation):
    """A point's request, run by one worker per request in flight, which starts its next request as soon as the previous
    one ends. Runtimes release the GIL while they compute."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        """`operations` are equal requests that may run concurrently, one per worker."""
        self._operations = tuple(operations)
        self._first = self._operations[0]
        self._last: list[Any] = [None] * len(operations)
        self._threads = WorkerThreads(len(operations))
        self.requests_in_flight = len(operations)
        self.count_like(self._first)

    def reset(self) -> None:
        self._first.reset()

    def run(self, mark: Mark) -> Any:
        return self._first.run(mark)

    def keep_in_flight(
        self, count: int, now_ns: Callable[[], int], until_ns: float = float("inf"), least: int = 0
    ) -> Sequence[Completion]:
        started = numbers()  # `next` is atomic in the interpreter, so no two workers get the same number
        began = now_ns()

        def work(worker: int) -> list[Completion]:
            operation, completions, submitted = self._operations[worker], list[Completion](), began
            while (number := next(started)) < count and (number < least or now_ns() < until_ns):
                marks: list[tuple[str, int]] = []
                operation.reset()
                self._last[worker] = operation.run(_recorder(marks, now_ns))
                completed = now_ns()
                completions.append(Completion(submitted_ns=submitted, completed_ns=completed, marks=tuple(marks)))
                submitted = completed
            return completions

        by_worker = self._threads.run([partial(work, number) for number in range(self.requests_in_flight)])
        return sorted(
            (completion for completions in by_worker for completion in completions), key=lambda one: one.completed_ns
        )

    def problem(self, output: Any) -> str | None:
        return self._first.problem(output)

    def readings(self, output: Any) -> Readings:
        return self._first.readings(output)

    def metrics(self) -> Sequence[CustomMetric]:
        return self._first.metrics()

    def arrays(self, output: Any) -> Mapping[str, Any]:
        return self._first.arrays(output)

    def count(self) -> Readings:
        return self._first.count()

    def verified(self) -> Mapping[str, Json]:
        """The first worker's facts, and whether the last requests of all workers have the same output."""
        outputs = [self._first.arrays(output) for output in self._last if output is not None]
        same = all(np.array_equal(array, outputs[0][name]) for arrays in outputs[1:] for name, array in arrays.items())
        return {**self._first.verified(), "requests": self.requests_in_flight, "requests_agree": same}

    def close(self) -> None:
        self._threads.close()
        for operation in self._operations:
            operation.close()


def _recorder(marks: list[tuple[str, int]], now_ns: Callable[[], int]) -> Mark:
    return lambda name: marks.append((name, now_ns()))
