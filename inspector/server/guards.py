"""What stands before the routes: who may ask, what may be sent, and what every answer says to the browser.

A page of another site that the user has open can send requests to this machine. It cannot set the Host header to ours when
it reaches us by a name of its own (DNS rebinding), nor hide its Origin, nor send JSON without asking first. So: Host must
be one of our own addresses, an Origin must be ours, and what is posted must be JSON. No answer lets another origin read it.
"""

import asyncio
import logging
import traceback
from pathlib import Path

from ..record import to_json

READ_SECONDS = 30       # for a body to arrive
# blob: and data: are pictures that the page itself makes.
POLICY = ("default-src 'self'; img-src 'self' data: blob:; base-uri 'none'; form-action 'none'; "
          "frame-ancestors 'none'")
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


def own_addresses(host, port):
    """The Host headers by which this server may be asked, in small letters: its own, localhost and 127.0.0.1."""
    names = {f"[{host}]" if ":" in host else host, "localhost", "127.0.0.1"}
    return {f"{name}:{port}".lower() for name in names} | ({name.lower() for name in names} if port == 80 else set())


class RefusedError(Exception):
    """A request that is answered here and now: (status, line)."""


def refuse_stranger(headers, addresses):
    """Raise RefusedError for a Host or an Origin that is not ours. headers: [(name, value)] of bytes."""
    hosts = [value.decode("latin-1").lower() for name, value in headers if name == b"host"]
    if len(hosts) != 1 or hosts[0] not in addresses:
        raise RefusedError(403, "this Host is not the server's own address")
    origins = [value.decode("latin-1").lower() for name, value in headers if name == b"origin"]
    if any(origin.removeprefix("http://") not in addresses or not origin.startswith("http://") for origin in origins):
        raise RefusedError(403, "this Origin is not the server's own")


def refuse_other_types(headers):
    """Raise RefusedError for a body that is not announced as JSON."""
    types = [value.decode("latin-1").split(";")[0].strip().lower() for name, value in headers if name == b"content-type"]
    if types != ["application/json"]:
        raise RefusedError(415, "the body must be sent as application/json")


async def read_body(receive, headers, most):
    """The whole body. Raises RefusedError where it is longer than `most` bytes, late, or broken off."""
    lengths = [value for name, value in headers if name == b"content-length"]
    if any(not value.isdigit() or int(value[:20]) > most for value in lengths):
        raise RefusedError(413, f"the body is too long; expected at most {most:,} bytes")
    body = bytearray()
    try:
        async with asyncio.timeout(READ_SECONDS):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise RefusedError(400, "the body broke off")
                body += message.get("body", b"")
                if len(body) > most:
                    raise RefusedError(413, f"the body is too long; expected at most {most:,} bytes")
                if not message.get("more_body"):
                    return bytes(body)
    except TimeoutError:
        raise RefusedError(408, f"the body did not arrive within {READ_SECONDS} seconds") from None


def replayed(body, receive):
    """A `receive` that gives the body read before, and then whatever still comes."""
    given = False

    async def again():
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


async def answer(send, status, line):
    """Send one line as {"error": line}."""
    content = to_json({"error": line}, indent=None).encode()
    await send({"type": "http.response.start", "status": status,
                "headers": [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]})
    await send({"type": "http.response.body", "body": content})


def internal_error(error):
    """One line, logged too, for a mistake of ours: its kind and innermost place, not its message, which may hold text."""
    place = traceback.extract_tb(error.__traceback__)[-1:]
    where = "".join(f" at {Path(frame.filename).name}:{frame.lineno}" for frame in place)
    line = f"internal error: {type(error).__name__}{where}; please report it"
    logging.getLogger("inspector").error(line)
    return line


class Guard:
    """An ASGI application around another: refuses what must not come in, and marks what goes out."""

    def __init__(self, app, addresses, max_body):
        self.app, self.addresses, self.max_body = app, addresses, max_body

    async def __call__(self, scope, receive, send):
        """Answer one request, as ASGI has it."""
        if scope["type"] != "http":         # no websockets, no lifespan: the server runs with both off
            return
        begun = False

        async def marked(message):
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                known = {name for name, _ in message["headers"]}
                more = [(name.encode(), value.encode()) for name, value in HEADERS.items() if name.encode() not in known]
                message = {**message, "headers": [*message["headers"], *more]}
            await send(message)

        try:
            refuse_stranger(scope["headers"], self.addresses)
            if scope["method"] == "POST":
                refuse_other_types(scope["headers"])
            body = await read_body(receive, scope["headers"], self.max_body)
            await self.app(scope, replayed(body, receive), marked)
        except RefusedError as refused:
            await answer(marked, *refused.args)
        except Exception as error:
            line = internal_error(error)
            if not begun:
                await answer(marked, 500, line)
