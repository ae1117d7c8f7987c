"""A live server for the tests: started in a thread on a free port of 127.0.0.1, and stopped."""

import http.client
import json
import socket
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import inspector
from inspector.server.app import Limits, make_app
from inspector.server.guards import own_addresses
from inspector.server.serving import bind, make_server

from . import models

SECONDS = 120           # no answer may take longer


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: dict           # names in small letters
    body: bytes

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def error(self):
        """The line of an error, which is all its JSON holds but `waiting`."""
        found = self.json
        assert set(found) - {"waiting"} == {"error"}, found
        assert found["error"].strip(), found
        assert "\n" not in found["error"], found
        return found["error"]


@dataclass(frozen=True)
class Client:
    """Asks one server; where that runs in a thread of ours, also its worker and a function that stops it early."""

    port: int
    worker: Any = None
    stop: Any = None

    @property
    def address(self):
        return f"http://127.0.0.1:{self.port}/"

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)

    def ask(self, method, path, body=None, **headers):
        """One request; header names with _ for -. body: bytes, or what JSON is made of."""
        connection = self.connect()
        try:
            headers = {name.replace("_", "-"): value for name, value in headers.items()}
            if body is not None and not isinstance(body, bytes):
                body = json.dumps(body).encode()
            if body is not None:
                headers.setdefault("content-type", "application/json")
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def get(self, path, **headers):
        return self.ask("GET", path, **headers)

    def post(self, name, body, **headers):
        return self.ask("POST", f"/api/{name}", body, **headers)


def two_models(folder):
    """{name: Model} of the demo and a tiny model in float64."""
    return {"demo": inspector.load("demo"), "tiny": inspector.load(models.tiny_folder(folder), dtype="float64")}


@contextmanager
def running(served, port=0, **limits):
    """A Client of a server of these models, served: {name: Model}."""
    with bind("127.0.0.1", port) as listening:
        port = listening.getsockname()[1]
        app, worker = make_app(served, Limits(**limits), own_addresses("127.0.0.1", port))
        server = make_server(app)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()

        def stop():
            server.should_exit = True
            thread.join(SECONDS)
            assert not thread.is_alive()

        try:
            yield Client(port, worker, stop)
        finally:
            try:
                stop()
            finally:
                worker.close()


def lines(answer):
    """The JSON of each line of an answer in lines."""
    return [json.loads(line) for line in answer.body.decode().splitlines()]


def raw(client, data, ended=True):
    """What comes back for these bytes, until the server closes; ended: nothing more is said to come."""
    with socket.create_connection(("127.0.0.1", client.port), timeout=SECONDS) as connection:
        connection.sendall(data)
        if ended:
            connection.shutdown(socket.SHUT_WR)
        found = b""
        while part := connection.recv(65536):
            found += part
        return found
