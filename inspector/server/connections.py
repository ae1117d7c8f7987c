"""The HTTP that uvicorn speaks, with one limit more: a request's header must arrive in time.

uvicorn limits how long a connection may be silent between two requests, but not how long it may take over a header: who
sends nothing, or a byte now and then, would keep a connection for ever.
"""

from uvicorn.protocols.http.h11_impl import H11Protocol

HEADER_SECONDS = 30     # for a header to be whole, from the connection's beginning or the end of the answer before


class PromptProtocol(H11Protocol):
    """One connection. It is closed where no request has begun in HEADER_SECONDS; one that has is left alone."""

    _late = None

    def connection_made(self, transport):
        """As asyncio has it."""
        super().connection_made(transport)
        self._wait()

    def on_response_complete(self):
        """As uvicorn has it."""
        self._wait()
        super().on_response_complete()

    def connection_lost(self, exc):
        """As asyncio has it."""
        self._late.cancel()
        super().connection_lost(exc)

    def _wait(self):
        if self._late is not None:
            self._late.cancel()
        self._late = self.loop.call_later(HEADER_SECONDS, self._give_up)

    def _give_up(self):
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()
