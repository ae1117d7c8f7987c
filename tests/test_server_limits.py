"""The server under load and without readers: many at once, slow headers, strange Hosts, a standard output that is gone."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import uvicorn
from uvicorn.server import ServerState

from inspector.server import connections
from inspector.server.guards import RefusedError, own_addresses, refuse_stranger

from .serving import SECONDS, Client, raw, running

ROOT = Path(__file__).parent.parent
BODY = {"text": "The cat sat on the mat.", "edits": {"1.1": "mean"}, "position": -1}


# -- many at once -------------------------------------------------------------------------------------------------------

def test_fifty_clients_at_once_get_an_answer_or_are_told_busy(loaded):
    """All kinds of calls, whole and in lines; and afterwards the queue is empty."""
    asked = [("explore", BODY), ("intervene", {**BODY, "position": 2}), ("trace", {"text": "A cat", "keep": "pattern"}),
             ("info", {}), ("explore", {"text": "A cat", "model": "tiny"})]
    with running(loaded, queue=4) as client:
        wanted = [client.post(name, body).body for name, body in asked]
        begin, found = threading.Barrier(50), [None] * 50

        def one(n):
            begin.wait(SECONDS)
            found[n] = client.post(*asked[n % 5], accept="application/x-ndjson" if n % 2 else "*/*")

        threads = [threading.Thread(target=one, args=(n,)) for n in range(50)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SECONDS)
        assert {answer.status for answer in found} <= {200, 503}
        answered = {n for n, answer in enumerate(found) if answer.status == 200}
        assert len(answered) >= 5
        for n in answered:
            last = found[n].body.rstrip(b"\n").split(b"\n")[-1]
            assert last == (b'{"result": ' + wanted[n % 5] + b"}" if n % 2 else wanted[n % 5])
        for n in set(range(50)) - answered:
            assert found[n].error == "busy: one request computes and 4 wait, as many as may; try again"
        for (name, body), whole in zip(asked, wanted, strict=True):
            assert client.post(name, body).body == whole


# -- who asks -----------------------------------------------------------------------------------------------------------

def test_a_request_with_no_host_or_with_two_is_refused_in_one_line(loaded):
    with running(loaded) as client:
        own = f"Host: 127.0.0.1:{client.port}\r\n"
        answers = {}
        for name, version, hosts in (("none", "1.0", ""), ("one", "1.0", own), ("two", "1.1", own + own),
                                     ("another", "1.1", own + "Host: evil.example\r\n"), ("empty", "1.0", "Host:\r\n")):
            whole = raw(client, f"GET /api/models HTTP/{version}\r\n{hosts}Connection: close\r\n\r\n".encode(), ended=False)
            head, _, body = whole.partition(b"\r\n\r\n")
            answers[name] = int(head.split()[1]), body
        assert answers.pop("one")[0] == 200
        line = b'{"error": "this Host is not the server\'s own address"}'
        assert answers.pop("none") == answers.pop("empty") == (403, line)
        assert set(answers.values()) == {(400, b"Invalid HTTP request received.")}          # h11 lets none through with two


@pytest.mark.parametrize("hosts", ["", "localhost:9 localhost:9", "localhost:9 evil", "evil localhost:9"])
def test_there_must_be_one_host(hosts):
    with pytest.raises(RefusedError):
        refuse_stranger([(b"host", host.encode()) for host in hosts.split()], own_addresses("127.0.0.1", 9))
    refuse_stranger([(b"host", b"localhost:9")], own_addresses("127.0.0.1", 9))


# -- headers that are slow ----------------------------------------------------------------------------------------------

def dripped(connection, data):
    """Send these bytes again and again, slowly, until the server closes; whether it did, within a bound."""
    connection.settimeout(0.02)
    for _ in range(500):
        try:
            connection.sendall(data)
            if not connection.recv(65536):
                return True
        except TimeoutError:
            continue
        except OSError:
            return True
    return False


@pytest.mark.parametrize("data", [b"", b"x"], ids=["silent", "slow"])
@pytest.mark.parametrize("first", [b"", b"GET / HTTP/1.1\r\nHost: "], ids=["at once", "within its header"])
def test_a_header_that_is_never_whole_is_given_up(loaded, monkeypatch, first, data):
    monkeypatch.setattr(connections, "HEADER_SECONDS", 0.3)
    with running(loaded) as client, socket.create_connection(("127.0.0.1", client.port), timeout=SECONDS) as connection:
        connection.sendall(first)
        assert dripped(connection, data)
        assert client.get("/api/models").status == 200


def test_a_second_header_must_arrive_in_time_too(loaded, monkeypatch):
    """Bytes now and then, so that it is not the limit on silence between two requests that ends it; and after an answer
    that took longer than a header may."""
    monkeypatch.setattr(connections, "HEADER_SECONDS", 0.3)
    free = threading.Event()
    with running(loaded) as client, socket.create_connection(("127.0.0.1", client.port), timeout=SECONDS) as connection:
        client.worker.submit(lambda progress: free.wait())
        connection.sendall(f"POST /api/info HTTP/1.1\r\nHost: 127.0.0.1:{client.port}\r\nContent-Type: application/json\r\n"
                           "Content-Length: 2\r\n\r\n{}".encode())
        time.sleep(0.8)
        free.set()
        assert b" 200 " in connection.recv(65536)
        assert dripped(connection, b"x")


class Clock:
    """An event loop that only notes what is to happen later: [(seconds, what)], and what of it was called off."""

    def __init__(self):
        self.later, self.off = [], []

    def call_later(self, seconds, act):
        self.later.append((seconds, act))
        return SimpleNamespace(cancel=lambda: self.off.append(act))


def test_the_time_for_a_header_begins_anew_after_each_answer_and_ends_with_the_connection():
    clock, closed = Clock(), []
    transport = SimpleNamespace(get_extra_info=lambda name: None, is_closing=lambda: True, close=lambda: closed.append(1))
    protocol = connections.PromptProtocol(uvicorn.Config(lambda: None, log_config=None), ServerState(), {}, clock)
    protocol.connection_made(transport)
    assert [(seconds, len(clock.off)) for seconds, _ in clock.later] == [(30, 0)]
    protocol.on_response_complete()
    assert (len(clock.later), len(clock.off)) == (2, 1)
    protocol.cycle = SimpleNamespace(response_complete=False)
    clock.later[1][1]()
    assert not closed                                           # a request is under way
    protocol.cycle = SimpleNamespace(response_complete=True)
    clock.later[1][1]()
    assert closed
    protocol.cycle = None
    protocol.connection_lost(OSError())
    assert (len(clock.later), len(clock.off)) == (2, 2)


def test_an_answer_may_take_longer_than_a_header_and_the_connection_is_used_again(loaded, monkeypatch):
    monkeypatch.setattr(connections, "HEADER_SECONDS", 0.3)
    free = threading.Event()
    with running(loaded) as client:
        client.worker.submit(lambda progress: free.wait())
        connection = client.connect()
        try:
            for _ in range(2):
                connection.request("POST", "/api/info", b"{}", {"content-type": "application/json"})
                if not free.is_set():
                    time.sleep(0.8)                             # it waits for the worker, longer than a header may take
                    free.set()
                answer = connection.getresponse()
                assert answer.status == 200
                answer.read()
        finally:
            free.set()
            connection.close()


# -- a standard output that is gone -------------------------------------------------------------------------------------

def a_free_port():
    with socket.create_server(("127.0.0.1", 0)) as found:
        return found.getsockname()[1]


def answers_when_up(process, client):
    """The first answer of a server that is being started; None where it ends instead."""
    end = time.monotonic() + SECONDS
    while process.poll() is None and time.monotonic() < end:
        try:
            return client.post("info", {}).status
        except OSError:
            time.sleep(0.05)
    return None


@pytest.mark.parametrize(("out", "flags"), [
    ("closed", ()), ("without a reader", ("--dtype", "bfloat16")), ("full", ("--json",))])
def test_a_server_needs_no_reader_of_what_it_prints(out, flags):
    """It serves, prints no traceback, and ends as it is told, also where there is a last line to print."""
    port = a_free_port()
    command = [sys.executable, "-m", "inspector", "serve", "--model", "demo", "--port", str(port), *flags]
    how = {"cwd": ROOT, "stderr": subprocess.PIPE, "text": True, "env": {**os.environ, "PYTHONPATH": str(ROOT)}}
    if out == "without a reader":
        read, write = os.pipe()
        os.close(read)
        process = subprocess.Popen(command, stdout=write, **how)
        os.close(write)
    else:
        shell = {"closed": 'exec "$@" >&-', "full": 'exec "$@" >/dev/full'}[out]
        process = subprocess.Popen(["sh", "-c", shell, "sh", *command], **how)
    try:
        assert answers_when_up(process, Client(port)) == 200
        assert process.poll() is None
    finally:
        process.send_signal(signal.SIGTERM)
        _, error = process.communicate(timeout=SECONDS)
    assert (process.returncode, error) == (0, "")
