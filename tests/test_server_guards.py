"""What the server refuses: bodies that cannot be answered, paths that are not its own, strangers, and what is no HTTP."""

import asyncio
import re
import socket

import pytest

from inspector.server import guards
from inspector.server.guards import own_addresses

from .serving import SECONDS, lines, raw, running

# -- what is refused ----------------------------------------------------------------------------------------------------

BAD = {
    "no JSON": ("info", b'{"text": ', "not valid JSON"),
    "no object": ("info", [1], "dict"),
    "an unknown argument": ("info", {"texts": "a"}, "texts: extra inputs"),
    "progress": ("info", {"progress": 1}, "progress: extra inputs"),
    "a number as text": ("info", {"tokens": "9"}, "tokens: "),
    "a switch as a number": ("info", {"text": "a", "bos": 1}, "bos: "),
    "a fraction as an id": ("info", {"ids": [1.5]}, "ids"),
    "no text at all": ("trace", {"keep": "pattern"}, "either a text or ids"),
    "text and ids": ("trace", {"text": "a", "ids": [1]}, "not both"),
    "an empty text": ("trace", {"text": ""}, "empty"),
    "half a surrogate": ("info", b'{"text": "\\ud800"}', "text"),
    "half a surrogate as a name": ("attribute", b'{"ids": [1], "target": "\\udfff"}', "not valid UTF-8"),
    "keep": ("trace", {"text": "a", "keep": "soul"}, "soul"),
    "too many numbers": ("trace", {"ids": [1] * 200}, "numbers"),
    "no such head": ("ablate", {"heads": "9.9"}, "no head 9.9"),
    "an edit": ("intervene", {"text": "a", "edits": {"0.0": -1}}, "0.0"),
    "an edit of no kind": ("intervene", {"text": "a", "edits": {"0.0": None}}, "'None'; expected zero, mean, or a number"),
    "a word for an edit": ("explore", {"text": "a", "edits": {"0.0": "off"}}, "is 'off'; expected zero, mean, or a number"),
    "a nested edit": ("explore", {"text": "a", "edits": {"0.0": ["zero"]}}, "expected zero, mean, or a number"),
    "an edit within an edit": ("intervene", {"text": "a", "edits": {"0.0": {"a": 1}}}, "expected zero, mean, or a number"),
    "edits as a list": ("intervene", {"text": "a", "edits": ["0.0"]}, "(zero, mean, or a number), such as"),
    "edits in pairs": ("explore", {"text": "a", "edits": [["0.0", "zero"]]}, "(zero, mean, or a number), such as"),
    "edits that are none": ("explore", {"text": "a", "edits": None}, "(zero, mean, or a number), such as"),
    "edits nested deep": ("intervene", b'{"text": "a", "edits": ' + b"[" * 900 + b"]" * 900 + b"}", "such as"),
    "a position outside the text": ("explore", {"ids": [1, 2], "position": 2}, "the text has 2 tokens"),
    "a position that is no number": ("explore", {"text": "a", "position": "1"}, "position: "),
    "no edits": ("intervene", {"text": "a"}, "edits: field required"),
    "an infinite edit": ("intervene", b'{"text": "a", "edits": {"0.0": Infinity}}', "inf"),
    "a position": ("attribute", {"text": "a", "position": 10**30}, "position"),
    "a seed": ("heads", {"seed": -1}, "seed"),
    "too many sequences": ("heads", {"n_sequences": 101}, "less than or equal to 100"),
    "too many references": ("intervene", {"text": "a", "edits": {}, "n_references": 10**9}, "less than or equal to 100"),
    "too many repeats": ("heads", {"repeats": 10**12}, "too small for repeats"),
    "too many rows": ("heads", {"ids": [[1, 2, 1, 2]] * 101}, "at most 100"),
    "too long": ("info", {"ids": [1] * 1025}, "at most 1,024"),
    "a row too long": ("heads", {"ids": [[1] * 1025]}, "at most 1,024"),
    "too long for the model": ("attribute", {"ids": [1] * 300}, "256"),
    "random beside a text": ("ids", {"repeat": "random", "text": "a"}, "no text"),
    "a seed for a text": ("ids", {"repeat": "text", "text": "a", "seed": 3}, "seed"),
    "a repeat of no kind": ("ids", {"repeat": "thrice", "text": "a"}, "repeat"),
    "a threshold that is no number": ("heads", b'{"threshold": NaN}', "threshold"),
    "a protocol": ("heads", {"protocol": "mine"}, "mine"),
    "bytes that are no text": ("info", b'{"text": "\xff"}', ""),
    "nested without end": ("info", b'{"ids":' + b"[" * 200_000, ""),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("accept", ["*/*", "application/x-ndjson"])
def test_what_cannot_be_answered_is_one_line(client, name, accept):
    route, body, named = BAD[name]
    answer = client.post(route, body, accept=accept)
    if answer.headers["content-type"] == "application/x-ndjson":
        (found,) = lines(answer)
        assert found["status"] == 422
        line = found["error"]
    else:
        assert answer.status in ({422} if named else {400, 422}), answer.body
        line = answer.error
    assert named in line
    assert "internal" not in line


@pytest.mark.parametrize(("method", "path", "status"), [
    ("GET", "/nothing", 404), ("GET", "/api/info", 405), ("POST", "/api/models", 405), ("POST", "/api/nothing", 404),
    ("POST", "/", 405), ("PUT", "/api/info", 405), ("DELETE", "/docs.css", 405), ("GET", "/api/info/", 404),
    ("OPTIONS", "/api/info", 405), ("TRACE", "/", 405), ("GET", "/redoc", 404), ("GET", "/api", 404),
])
def test_other_paths_and_methods(client, method, path, status):
    answer = client.ask(method, path, b"{}" if method == "POST" else None)
    assert answer.status == status
    assert answer.error == {404: "not found", 405: "method not allowed"}[status]


@pytest.mark.parametrize("path", [
    "/../app.py", "/../../pyproject.toml", "/docs.css/../../app.py", "/%2e%2e/app.py", "/..%2fapp.py", "/index.html",
    "/%2e%2e%2f%2e%2e%2fapp.py", "/static/docs.css", "/static/../app.py", "//etc/passwd", "/etc/passwd", "/./docs.css",
    "/docs.css%00", "/docs.css/", "/app.py", "/templates/docs.html", "/..\\app.py", "/%5c..%5capp.py", "file:///etc/passwd",
    "/__init__.py", "/~root/.profile",
])
def test_no_file_is_served_but_the_page_s_own(client, path):
    answer = client.get(path)
    assert answer.status == 404
    assert answer.error == "not found"


def test_the_page_s_own_files_are_served(client):
    for path, kind in (("/", "text/html; charset=utf-8"), ("/docs", "text/html; charset=utf-8"),
                       ("/docs.css", "text/css; charset=utf-8"), ("/openapi.json", "application/json")):
        answer = client.get(path)
        assert (answer.status, answer.headers["content-type"]) == (200, kind)
        assert answer.body


# -- who may ask --------------------------------------------------------------------------------------------------------

HOSTS = {"127.0.0.1:{port}": 200, "localhost:{port}": 200, "LocalHost:{port}": 200, "127.0.0.1": 403, "localhost": 403,
         "localhost:1": 403, "evil.example": 403, "evil.example:{port}": 403, "127.0.0.1:{port}.evil.example": 403,
         "127.0.0.2:{port}": 403, "[::1]:{port}": 403, "localhost.:{port}": 403, "user@localhost:{port}": 403, "": 403}


@pytest.mark.parametrize("path", ["/", "/api/models", "/nothing", "/openapi.json"])
@pytest.mark.parametrize("host", HOSTS)
def test_another_host_is_refused(client, host, path):
    answer = client.get(path, host=host.format(port=client.port))
    expected = 404 if HOSTS[host] == 200 and path == "/nothing" else HOSTS[host]
    assert answer.status == expected
    if expected == 403:
        assert answer.error == "this Host is not the server's own address"


@pytest.mark.parametrize(("origin", "status"), [
    ("http://127.0.0.1:{port}", 200), ("http://localhost:{port}", 200), ("null", 403), ("https://127.0.0.1:{port}", 403),
    ("http://evil.example", 403), ("http://127.0.0.1:1", 403), ("http://127.0.0.1:{port}.evil.example", 403),
    ("http://127.0.0.1", 403), ("file://", 403), ("", 403), ("127.0.0.1:{port}", 403),
])
def test_another_origin_is_refused(client, origin, status):
    answer = client.post("info", {}, origin=origin.format(port=client.port))
    assert answer.status == status
    if status == 403:
        assert answer.error == "this Origin is not the server's own"
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize(("kind", "status"), [
    ("application/json", 200), ("application/json; charset=utf-8", 200), ("Application/JSON", 200), ("text/plain", 415),
    ("application/x-www-form-urlencoded", 415), ("multipart/form-data; boundary=x", 415), ("", 415),
    ("text/plain; application/json", 415), ("application/json5", 415),
])
def test_only_json_is_taken(client, kind, status):
    assert client.post("info", {}, content_type=kind).status == status


def test_what_a_form_of_another_site_can_send_is_refused(client):
    """A browser sends no question first for these; they must fail of themselves, also without an Origin."""
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        assert client.post("info", b'{"text": "a"}', content_type=kind).status == 415


def test_no_browser_is_allowed_more(client):
    for answer in (client.get("/"), client.get("/nothing"), client.post("info", {}), client.get("/docs"),
                   client.get("/", host="evil"), client.post("info", b"x"), client.post("info", {}, content_type="x/y"),
                   client.post("trace", {"text": "a"}, accept="application/x-ndjson")):
        for name, value in guards.HEADERS.items():
            assert answer.headers[name].startswith(value)
        assert re.fullmatch(rf"{re.escape(guards.POLICY)}(; script-src 'self' 'sha256-[\w+/=]+')?",
                            answer.headers["content-security-policy"])
        assert not any(name.startswith("access-control") for name in answer.headers)
        assert "server" not in answer.headers
    assert guards.POLICY.startswith("default-src 'self'; ")
    assert "unsafe" not in guards.POLICY


@pytest.mark.parametrize(("host", "port", "expected"), [
    ("127.0.0.1", 8321, {"127.0.0.1:8321", "localhost:8321"}),
    ("192.0.2.7", 80, {"192.0.2.7:80", "192.0.2.7", "localhost:80", "localhost", "127.0.0.1:80", "127.0.0.1"}),
    ("::1", 9, {"[::1]:9", "localhost:9", "127.0.0.1:9"}),
    ("Box.Local", 9, {"box.local:9", "localhost:9", "127.0.0.1:9"}),
])
def test_the_server_s_own_addresses(host, port, expected):
    assert own_addresses(host, port) == expected


def test_a_body_is_limited_announced_or_not(loaded):
    with running(loaded, max_body=1000) as client:
        assert client.post("info", {"text": "a" * 900}).status == 200
        answer = client.post("info", {"text": "a" * 1000})
        assert (answer.status, answer.error) == (413, "the body is too long; expected at most 1,000 bytes")
        chunk, end = b"64\r\n" + b" " * 98 + b"{}\r\n", b"0\r\n\r\n"
        for header, body, status in ((b"Content-Length: 99999999999", b"{}", b"413"),
                                     (b"Transfer-Encoding: chunked", chunk * 11 + end, b"413"),
                                     (b"Transfer-Encoding: chunked", chunk + end, b"200")):
            head = (f"POST /api/info HTTP/1.1\r\nHost: localhost:{client.port}\r\nContent-Type: application/json\r\n"
                    "Connection: close\r\n").encode()
            assert raw(client, head + header + b"\r\n\r\n" + body, ended=False).split()[1] == status


def test_a_body_that_never_comes_is_given_up(loaded, monkeypatch):
    monkeypatch.setattr(guards, "READ_SECONDS", 0.2)
    with running(loaded) as client, socket.create_connection(("127.0.0.1", client.port), timeout=SECONDS) as connection:
        connection.sendall(f"POST /api/info HTTP/1.1\r\nHost: localhost:{client.port}\r\nContent-Type: application/json\r\n"
                           "Content-Length: 10\r\n\r\n{".encode())
        assert b" 408 " in connection.recv(65536).split(b"\r\n")[0]


@pytest.mark.parametrize("data", [b"\x16\x03\x01\x02\x00", b"GET\r\n\r\n", b"\r\n" * 10, b"GET / HTTP/1.1\r\n\r\n",
                                  b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n",
                                  b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n", b"POST /api/info HTTP/1.1\r\nHost: a"])
def test_what_is_no_http_ends_and_the_server_goes_on(client, data):
    assert b" 200 " not in raw(client, data)[:20]
    assert client.get("/api/models").status == 200


def test_a_websocket_is_refused(client):
    head = (f"GET / HTTP/1.1\r\nHost: localhost:{client.port}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n")
    assert b" 101 " not in raw(client, head.encode())[:20]


def test_an_application_that_breaks_is_answered_for(caplog):
    async def broken(scope, receive, send):
        raise ValueError("a text")

    sent = []
    scope = {"type": "http", "method": "GET", "headers": [(b"host", b"localhost:1")]}

    async def receive():
        return {"type": "http.request", "body": b""}

    async def send(message):
        sent.append(message)

    asyncio.run(guards.Guard(broken, {"localhost:1"}, 10)(scope, receive, send))
    assert sent[0]["status"] == 500
    assert b"internal error: ValueError at test_server_guards.py:" in sent[1]["body"]
    assert "ValueError" in caplog.text
    assert "a text" not in caplog.text
