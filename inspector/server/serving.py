"""`serve`: bind, load, run until told to stop."""

import ipaddress
import signal
import socket
import threading
from contextlib import contextmanager

from ..errors import ArgumentError, InspectorError


def refuse_missing():
    """Raise InspectorError where the extra is not installed."""
    try:
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise InspectorError(f"the live page needs FastAPI and uvicorn, and {error.name} is not installed: "
                             "pip install -c constraints.txt -e \".[serve]\"") from error


def is_everywhere(address):
    """Whether an address stands for all of this machine's: 0.0.0.0, ::, and the first written as an IPv6 one."""
    found = ipaddress.ip_address(address)
    return (getattr(found, "ipv4_mapped", None) or found).is_unspecified


def bind(host, port):
    """A listening socket on one address of this machine. Raises ArgumentError."""
    if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port < 2**16:
        raise ArgumentError(f"port is {port!r}; expected a whole number from 0 (any free one) to 65535")
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        if is_everywhere(address[0]):
            raise ArgumentError(f"host {host!r} is every address of this machine at once; name the one to serve on")
        opened = socket.socket(family, kind)
        try:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            opened.bind(address)
            opened.listen(128)
        except OSError:
            opened.close()
            raise
    except (OSError, UnicodeError) as error:
        raise ArgumentError(f"cannot listen on {str(host)[:80]}:{port}: {getattr(error, 'strerror', None) or error}; choose "
                            "another --host or --port") from error
    return opened


def make_server(app):
    """The uvicorn server of an application: it logs nothing, for what is asked is nobody's business."""
    import uvicorn

    from .connections import PromptProtocol
    return uvicorn.Server(uvicorn.Config(app, log_config=None, log_level="critical", access_log=False, server_header=False,
                                         proxy_headers=False, http=PromptProtocol, ws="none", lifespan="off",
                                         loop="asyncio", timeout_graceful_shutdown=1))


@contextmanager
def stopped_by_signals(server):
    """Ctrl-C and SIGTERM end the server, also before it runs, and then do nothing more: it has stopped as it was told.

    uvicorn raises them again when it has stopped; this is what then receives them.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, server.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def serve(models=("gpt2",), *, dtype="float32", device="cpu", host="127.0.0.1", port=8321, max_tokens=1024,
          max_body=1_000_000, queue=4, timeout=60, note=None):
    """Serve the live page and its JSON API on this machine until Ctrl-C or SIGTERM.

    models: sources as `load` takes them; the first is the default of every request. port 0 takes a free one. max_tokens:
    of a text; max_body: bytes of a request; queue: requests that may wait while one computes, beyond which the answer is
    'busy'; timeout: seconds that one may compute. note: a function that is told the address once the server listens.

    Whoever can reach the address can compute on this machine: it is 127.0.0.1 unless another is asked for.

    Raises InspectorError where FastAPI and uvicorn are not installed; ArgumentError for a limit, a host or a port that
    cannot be; and as `load`.
    """
    refuse_missing()
    from ..checkpoint.loading import load
    from .app import Limits, make_app
    from .guards import own_addresses
    sources = [models] if isinstance(models, str) else list(models)
    if not sources:
        raise ArgumentError("no model is named; expected at least one, such as \"demo\"")
    for name, value, least in (("max_tokens", max_tokens, 1), ("max_body", max_body, 1), ("queue", queue, 0)):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ArgumentError(f"{name} is {value!r}; expected a whole number of at least {least}")
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout > 0:
        raise ArgumentError(f"timeout is {timeout!r}; expected seconds, more than 0")
    with bind(host, port) as listening:
        port = listening.getsockname()[1]
        loaded = {source: load(source, dtype=dtype, device=device) for source in sources}
        app, worker = make_app(loaded, Limits(max_tokens, max_body, queue, timeout), own_addresses(host, port))
        server = make_server(app)
        try:
            with stopped_by_signals(server):
                if note is not None:
                    note(f"http://{f'[{host}]' if ':' in host else host}:{port}/")
                server.run(sockets=[listening])
        finally:
            worker.close()
