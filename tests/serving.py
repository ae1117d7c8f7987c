"""A live server for the tests: started in a thread on a free port of 127.0.0.1, and stopped."""

import http.client
import json
import socket
import threading
from contextlib import contextmanager
from dataclasses import dataclass

from inspector.server.app import Limits, make_app
from inspector.server.guards import own_addresses
from inspector.server.serving import bind, make_server

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
    """Asks one server."""

    port: int

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


@contextmanager
def running(models, **limits):
    """A Client of a server of these models, {name: Model}."""
    with bind("127.0.0.1", 0) as listening:
        port = listening.getsockname()[1]
        app, worker = make_app(models, Limits(**limits), own_addresses("127.0.0.1", port))
        server = make_server(app)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield Client(port)
        finally:
            server.should_exit = True
            thread.join(SECONDS)
            worker.close()
        assert not thread.is_alive()


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
