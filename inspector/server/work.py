"""One worker: one job computes at a time, a few wait, and the rest is told 'busy'.

A job is a function of a `progress` wrapper, as the library's functions take it. The wrapper is how a job is watched (how
many steps are done) and how it ends early: at the next step, usually the next layer, it raises StoppedError.
"""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

TICK = 0.05             # seconds between two looks at whether the client is still there


class StoppedError(Exception):
    """Raised inside a job that nobody waits for any longer."""


class BusyError(Exception):
    """As many jobs wait as may: (how many)."""


class OvertimeError(Exception):
    """A job has computed for longer than it may: (seconds)."""


class GoneError(Exception):
    """The client went away."""


class Job:
    """A computation on its way. `at` is (steps done, steps in all or None, what they are), None before the first."""

    def __init__(self, compute):
        self._compute, self._stop = compute, threading.Event()
        self.at, self.started, self.future = None, None, None

    def run(self):
        """Compute. In the worker's thread."""
        self.started = time.monotonic()
        return self._compute(self.progress)

    def stop(self):
        """End it: at once if it still waits, else at its next step."""
        self._stop.set()
        self.future.cancel()

    def progress(self, steps, total=None, desc=None):
        """The wrapper that a library function puts around its steps. Raises StoppedError."""
        total = len(steps) if total is None and hasattr(steps, "__len__") else total
        for done, step in enumerate(steps):
            if self._stop.is_set():
                raise StoppedError
            self.at = (done, total, desc or "steps")
            yield step


def bell(future):
    """An asyncio.Event that is set when a future of another thread is done."""
    loop, done = asyncio.get_running_loop(), asyncio.Event()

    def ring(_):
        with suppress(RuntimeError):        # the loop has ended, and nobody waits
            loop.call_soon_threadsafe(done.set)

    future.add_done_callback(ring)
    return done


class Worker:
    """Computes one job at a time in a thread of its own; `waiting` more may wait; each may compute for `seconds`."""

    def __init__(self, waiting, seconds):
        self._most, self._seconds = waiting + 1, seconds
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="inspector")
        self._lock, self._jobs = threading.Lock(), set()

    def submit(self, compute):
        """A Job that computes as soon as it can. Raises BusyError."""
        job = Job(compute)
        with self._lock:
            if len(self._jobs) >= self._most:
                raise BusyError(len(self._jobs) - 1)
            self._jobs.add(job)
            job.future = self._pool.submit(job.run)
        job.future.add_done_callback(lambda _: self._forget(job))
        return job

    def _forget(self, job):
        with self._lock:
            self._jobs.discard(job)

    async def watch(self, job, gone):
        """Yield the job's `at` whenever it has changed, until it is done. A job that is no longer watched is stopped.

        gone: an async function, whether the client went away. Raises GoneError and OvertimeError.
        """
        seen, done = None, bell(job.future)
        try:
            while not job.future.done():
                with suppress(TimeoutError):
                    await asyncio.wait_for(done.wait(), TICK)
                if await gone():
                    raise GoneError
                if job.started is not None and time.monotonic() - job.started > self._seconds and not job.future.done():
                    raise OvertimeError(self._seconds)
                if job.at != seen:
                    seen = job.at
                    yield seen
        finally:
            job.stop()

    def close(self):
        """Stop all jobs and the thread."""
        with self._lock:
            left = list(self._jobs)
        for job in left:
            job.stop()
        self._pool.shutdown(cancel_futures=True)
