"""The live page's server: its answers are the library's, its guards hold, and nothing of a text reaches the log."""

import asyncio
import inspect
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import inspector
from inspector import answers
from inspector.cli import main
from inspector.record import to_json
from inspector.server import bodies, calls, serving
from inspector.server.work import BusyError, GoneError, OvertimeError, Worker

from .serving import SECONDS, Client, lines, raw, running

ROOT = Path(__file__).parent.parent
TEXT = "Ms. Dursley saw a cat. Ms. Dursley sat"
LONG = {"heads": "0.1 1.2 2.3 3.4", "n_sequences": 40, "period": 100, "n_controls": 100}    # an `ablate` of about a minute
SECRET = "Zarathustra"


# -- the answers are the library's --------------------------------------------------------------------------------------

ASKED = {
    "info": [{}, {"text": TEXT, "tokens": 99}, {"ids": [1, 2], "model": "tiny"}],
    "trace": [{"text": TEXT, "keep": "pattern,logits", "bos": True}, {"ids": [5], "model": "tiny"},
              {"ids": "1 2 3", "keep": ["scores", "q"], "model": "tiny"}],
    "heads": [{"n_sequences": 3, "period": 9, "seed": 4}, {"text": TEXT}, {"model": "tiny", "n_sequences": 2, "period": 7},
              {"ids": [[1, 2, 3, 1, 2, 3], [4, 5, 6, 4, 5, 6]]}],
    "induction": [{"text": TEXT}, {"text": TEXT, "heads": "1.1", "bos": True},
                  {"ids": [1, 2], "heads": ["0.0"], "model": "tiny"}],
    "attribute": [{"text": TEXT}, {"text": TEXT, "target": " D", "against": 5, "position": 3}],
    "ablate": [{"heads": "1.1 1.2", "n_sequences": 2, "period": 8, "n_controls": 2, "text": TEXT},
               {"heads": ["0.1"], "n_sequences": 2, "period": 6, "fill": "zero", "patterns": "frozen", "model": "tiny"}],
    "intervene": [{"text": TEXT, "edits": {"0.3": "zero", "1.1": "mean", "1.2": 0.5}, "top": 3},
                  {"ids": [1, 2, 1, 2], "edits": "0.1=mean", "model": "tiny", "n_references": 3, "position": 1}],
}
FORMS = {"info": dict, "trace": answers.of_trace, "heads": answers.of_heads, "induction": answers.of_induction,
         "attribute": answers.of_attribution, "ablate": answers.of_table, "intervene": answers.of_intervention}


def library(loaded, name, body):
    """What the library says to a body, as it would be after a journey through JSON."""
    arguments = {key: value for key, value in body.items() if key != "model"}
    found = getattr(inspector, name)(loaded[body.get("model", "demo")], **arguments)
    return json.loads(to_json(FORMS[name](found)))


@pytest.mark.parametrize(("name", "body"), [(name, body) for name, several in ASKED.items() for body in several])
def test_every_answer_is_the_library_s_bit_for_bit(client, loaded, name, body):
    answer = client.post(name, body)
    assert answer.status == 200, answer.body
    assert answer.headers["content-type"] == "application/json"
    assert answer.json == library(loaded, name, body)


def test_every_function_that_is_served_was_asked():
    assert {*ASKED, "ids", "explore"} == set(calls.CALLS)


@pytest.mark.parametrize("name", ["info", "heads", "attribute", "induction", "ablate", "intervene"])
def test_the_answer_is_what_the_verb_prints(client, capsys, name):
    body = ASKED[name][0]
    flags = [part for key, value in body.items() if key not in ("text", "edits") for part in (f"--{key.replace('_', '-')}",
             str(value))]
    if "edits" in body:
        flags += ["--edits", " ".join(f"{head}={how}" for head, how in body["edits"].items())]
    assert main([name, *([body["text"]] if "text" in body else []), *flags, "--model", "demo", "--json"]) == 0
    printed, answer = json.loads(capsys.readouterr().out), client.post(name, body).json
    assert printed.pop("run")["arguments"] == answer.pop("run")["arguments"]
    assert printed == answer


def test_numbers_arrive_with_all_their_bits(client, loaded):
    pattern = inspector.trace(loaded["demo"], TEXT).pattern
    assert client.post("trace", {"text": TEXT, "keep": "pattern"}).json["pattern"] == pattern.tolist()
    scores = client.post("trace", {"ids": [1, 2], "keep": "scores", "model": "tiny"}).json["scores"]
    exact = inspector.trace(loaded["tiny"], ids=[1, 2]).scores
    assert scores[2][3][0] == [exact[2, 3, 0, 0].item(), None]                               # above the diagonal


@pytest.mark.parametrize("name", sorted(ASKED))
def test_bodies_have_the_arguments_and_defaults_of_the_functions(name):
    signature = inspect.signature(getattr(inspector, name)).parameters
    fields = calls.CALLS[name].body.model_fields
    assert set(fields) - {"model"} == set(signature) - {"model", "progress"} - ({"edits"} if name == "trace" else set())
    for field in set(fields) - {"model"}:
        default = inspect.Parameter.empty if fields[field].is_required() else fields[field].default
        assert default == signature[field].default, field


def test_ids_of_a_text_twice_over_and_drawn(client, loaded):
    once = client.post("ids", {"text": TEXT}).json
    assert once["labels"] == inspector.trace(loaded["demo"], TEXT).labels
    assert client.post("ids", {"text": TEXT, "repeat": "text"}).json["ids"] == once["ids"] * 2
    bos = loaded["tiny"].config.bos_token_id
    twice = client.post("ids", {"ids": [4, 5], "bos": True, "repeat": "text", "model": "tiny"}).json["ids"]
    assert twice == [bos, 4, 5, 4, 5]
    drawn = client.post("ids", {"repeat": "random", "period": 7, "seed": 3, "bos": True, "model": "tiny"}).json["ids"]
    from inspector.findings.prompts import draw
    assert drawn == draw(loaded["tiny"], period=7, n_sequences=1, bos=True, seed=3).ids[0].tolist()
    assert len(client.post("ids", {"repeat": "random"}).json["ids"]) == 100


@pytest.mark.parametrize("edits", [{}, {"0.3": "zero", "1.1": 2}])
def test_the_explorer_s_data_are_those_of_its_page(client, loaded, edits):
    """As `explore` packs them, for the text and, with edits, for the text with heads changed."""
    from inspector.findings.interventions import edits_for
    from inspector.pages.explorer.bundle import text_parts, text_scores
    demo, ids = loaded["demo"], loaded["demo"].tokenizer.encode(TEXT)
    texts = client.post("explore", {"text": TEXT, "edits": edits}).json["texts"]
    runs = [inspector.trace(demo, TEXT, edits=edits_for(demo, ids, each)) for each in ({}, edits)[:2 if edits else 1]]
    for found, run in zip(texts, runs, strict=True):
        expected = json.loads(to_json(text_parts(run, text_scores(run))))
        assert {name: value for name, value in found.items() if name != "name"} == expected


def test_the_models_and_the_limits_are_told(client, loaded):
    found = client.get("/api/models").json
    assert [model["name"] for model in found["models"]] == ["demo", "tiny"]
    assert found["models"][1] | {"n_layer": 3, "n_head": 4, "dtype": "float64", "tokenizer": True} == found["models"][1]
    assert found["limits"] == {"max_tokens": 1024, "max_body": 1_000_000, "queue": 4, "timeout": 60}
    assert found["version"] == inspector.__version__


def test_the_first_model_is_the_default_and_another_is_asked_by_name(client):
    heads = {model: client.post("info", {} if model is None else {"model": model}).json["config"]["n_head"]
             for model in (None, "demo", "tiny")}
    assert heads == {None: 6, "demo": 6, "tiny": 4}
    answer = client.post("info", {"model": "gpt2"})
    assert (answer.status, answer.error) == (422, "there is no such model here; expected one of demo, tiny")


# -- progress -----------------------------------------------------------------------------------------------------------

def test_an_answer_in_lines_ends_with_the_same_result(client, loaded):
    body = {"heads": "1.1", "n_sequences": 12, "period": 100, "n_controls": 4}
    answer = client.post("ablate", body, accept="application/x-ndjson")
    assert answer.headers["content-type"] == "application/x-ndjson"
    *steps, last = lines(answer)
    assert steps
    assert all(set(step) == {"progress"} and step["progress"][0] < step["progress"][1] for step in steps)
    assert {step["progress"][2] for step in steps} == {"cuts"}
    assert last == {"result": library(loaded, "ablate", body)}


def test_an_error_in_lines(client):
    answer = client.post("trace", {"ids": [99999]}, accept="application/x-ndjson")
    assert lines(answer) == [{"error": "ids outside the vocabulary of 2048: 99999", "status": 422}]


# -- the documents ------------------------------------------------------------------------------------------------------

def test_openapi_has_every_route_and_its_examples_work(client):
    document = client.get("/openapi.json").json
    assert set(document["paths"]) == {"/api/models", *(f"/api/{name}" for name in calls.CALLS)}
    for name in calls.CALLS:
        operation = document["paths"][f"/api/{name}"]["post"]
        example = operation["requestBody"]["content"]["application/json"]["example"]
        assert client.post(name, example).status == 200, name
        assert operation["description"] == inspect.getdoc(calls.CALLS[name].function)


def test_the_documents_page_needs_no_other_host_and_lists_everything(client):
    page = client.get("/docs").body.decode()
    assert "http://" not in page
    assert "https://" not in page
    assert "<script" not in page
    for name, call in calls.CALLS.items():
        assert f"POST /api/{name}" in page
        for field in call.body.model_fields:
            assert f"<code>{field}</code>" in page


# -- one worker ---------------------------------------------------------------------------------------------------------

async def never():
    return False


async def always():
    return True


async def watched(worker, job, gone=never):
    return [at async for at in worker.watch(job, gone)]


@pytest.fixture
def worker(request):
    """A Worker with two places to wait; its seconds are the parameter."""
    found = Worker(waiting=2, seconds=getattr(request, "param", SECONDS))
    yield found
    found.close()


@pytest.fixture
def gate(worker):
    """(begun, go) of `blocked` jobs; at the end of a test, passed or failed, they may go on."""
    begun, go = threading.Event(), threading.Event()
    yield begun, go
    go.set()


def blocked(begun, go):
    """A job that says that it has begun, and steps on when it may."""
    def compute(progress):
        for _ in progress([1, 2, 3]):
            begun.set()
            assert go.wait(SECONDS)
        return "done"

    return compute


def test_a_queue_is_as_long_as_it_says_and_frees_its_places(worker, gate):
    begun, go = gate
    jobs = [worker.submit(blocked(begun, go)) for _ in range(3)]
    assert begun.wait(SECONDS)
    with pytest.raises(BusyError) as error:
        worker.submit(lambda progress: 1)
    assert error.value.args == (2,)
    assert sum(job.started is not None for job in jobs) == 1                                 # one at a time
    go.set()
    assert [job.future.result(SECONDS) for job in jobs] == ["done"] * 3
    worker.submit(lambda progress: 1)


def test_who_goes_away_frees_the_worker_and_the_queue(worker, gate):
    begun, go = gate
    running_, *waiting = [worker.submit(blocked(begun, go)) for _ in range(3)]
    assert begun.wait(SECONDS)
    for job in waiting:
        with pytest.raises(GoneError):
            asyncio.run(asyncio.wait_for(watched(worker, job, always), 20))
        assert job.future.cancelled()                       # it never began
    worker.submit(lambda progress: 1)                       # their places are free
    with pytest.raises(GoneError):
        asyncio.run(watched(worker, running_, always))
    go.set()                                                # at its next step it ends
    assert type(running_.future.exception(SECONDS)).__name__ == "StoppedError"


@pytest.mark.parametrize("worker", [0.01], indirect=True)
def test_a_job_that_takes_too_long_is_left_and_ends(worker, gate):
    begun, go = gate
    job = worker.submit(blocked(begun, go))
    with pytest.raises(OvertimeError):
        asyncio.run(asyncio.wait_for(watched(worker, job), 20))
    go.set()
    assert type(job.future.exception(SECONDS)).__name__ == "StoppedError"


def test_steps_are_told_with_their_number_and_name(worker):
    go = [threading.Event() for _ in range(3)]

    def compute(progress):
        for n in progress(range(2), total=2, desc="layers"):
            assert go[n].wait(SECONDS)
        for _ in progress(iter("ab")):
            assert go[2].wait(SECONDS)
        return "done"

    async def look():
        job, seen = worker.submit(compute), []
        async for at in worker.watch(job, never):
            seen.append(at)
            go[min(len(seen) - 1, 2)].set()
        return seen, job.future.result()

    seen, result = asyncio.run(look())
    assert seen[:3] == [(0, 2, "layers"), (1, 2, "layers"), (0, None, "steps")]
    assert result == "done"


def test_twenty_clients_at_once_get_an_answer_or_are_told_busy(loaded):
    body = {"n_sequences": 8, "period": 50}
    expected, found = library(loaded, "heads", body), [None] * 20
    with running(loaded, queue=3) as client:
        def one(n):
            found[n] = client.post("heads", body)

        threads = [threading.Thread(target=one, args=(n,)) for n in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SECONDS)
        assert all(found)
        answered = [answer for answer in found if answer.status == 200]
        busy = [answer for answer in found if answer.status == 503]
        assert len(answered) + len(busy) == 20
        assert len(answered) >= 4
        assert all(answer.json == expected for answer in answered)
        for answer in busy:
            assert answer.error.startswith("busy")
            assert answer.json["waiting"] == 3
            assert answer.headers["retry-after"] == "1"
        assert client.post("info", {}).status == 200


@pytest.mark.parametrize("accept", ["application/x-ndjson", "*/*"])
def test_closing_the_connection_frees_the_worker(loaded, accept):
    with running(loaded, queue=0, timeout=10 * SECONDS) as client:
        connection = client.connect()
        connection.request("POST", "/api/ablate", json.dumps(LONG), {"content-type": "application/json", "accept": accept})
        if accept != "*/*":
            assert json.loads(connection.getresponse().readline())["progress"]
        else:
            while client.post("info", {}).status != 503:        # it computes now
                pass
        assert client.post("info", {}).status == 503
        connection.sock.shutdown(socket.SHUT_RDWR)
        connection.close()
        while (answer := client.post("info", {})).status == 503:    # until its next step; or pytest ends before it does
            pass
        assert answer.status == 200


@pytest.mark.parametrize("accept", ["application/x-ndjson", "*/*"])
def test_what_takes_too_long_is_stopped(loaded, accept):
    with running(loaded, timeout=0.3) as client:
        answer = client.post("ablate", LONG, accept=accept)
        if accept == "*/*":
            assert answer.status == 504
            line = answer.error
        else:
            assert lines(answer)[-1]["status"] == 504
            line = lines(answer)[-1]["error"]
        assert line.startswith("this took longer than 0.3 seconds")
        assert client.post("info", {}).status == 200


# -- nothing is told to the log -----------------------------------------------------------------------------------------

def started(*argv, code=None):
    """(process, Client) of a server in a process of its own."""
    command = [sys.executable, "-m", "inspector"] if code is None else [sys.executable, "-c", code]
    process = subprocess.Popen([*command, "serve", "--model", "demo", "--port", "0", *argv], cwd=ROOT, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "default"})
    line = process.stdout.readline()
    assert line.startswith("http://127.0.0.1:"), (line, process.communicate(timeout=SECONDS))
    return process, Client(int(line.split("/")[2].rpartition(":")[2]))


MODULES = ("import sys; from inspector.cli import main; code = main(sys.argv[1:]);"
           "print([m for m in ('transformers', 'matplotlib.pyplot') if m in sys.modules], code)")


def test_no_text_reaches_the_log_and_no_route_imports_transformers_and_sigterm_ends_it():
    process, client = started(code=MODULES)
    try:
        for name in calls.CALLS:
            body = {"text": SECRET, "edits": {"0.1": "zero"}} if name == "intervene" else {"text": SECRET}
            if name in ("ablate", "heads"):
                body |= {"n_sequences": 2} if name == "ablate" else {}
                body |= {"period": 5, "heads": "1.1", "n_controls": 1} if name == "ablate" else {}
            if name == "trace":
                body["keep"] = "pattern"
            for accept in ("*/*", "application/x-ndjson"):
                answer = client.post(name, body, accept=accept)
                assert answer.status == 200, answer.body
                assert b'"error"' not in answer.body[:9]
        for wrong in ({"text": SECRET, SECRET: 1}, {"ids": SECRET}, {"text": SECRET, "heads": SECRET}, {"model": SECRET}):
            assert client.post("induction", wrong).status == 422
        client.post("attribute", {"text": "a", "target": SECRET * 9})
        client.post("info", f'{{"text": "{SECRET}'.encode())
        client.get(f"/{SECRET}?{SECRET}={SECRET}")
        client.get(f"/api/models?text={SECRET}", referer=f"http://{SECRET}/", cookie=SECRET)
        client.get("/", host=SECRET)
        client.post("info", {"text": SECRET}, content_type="text/plain")
        raw(client, f"{SECRET} {SECRET}\r\n\r\n".encode())
    finally:
        process.send_signal(signal.SIGTERM)
        out, error = process.communicate(timeout=SECONDS)
    assert process.returncode == 0
    assert out == "[] 0\n"                                  # after the address: what was imported, and the exit code
    assert error == ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_also_while_it_computes(number):
    process, client = started("--timeout", "600")
    connection = client.connect()
    connection.request("POST", "/api/ablate", json.dumps(LONG), {"content-type": "application/json",
                                                                 "accept": "application/x-ndjson"})
    assert json.loads(connection.getresponse().readline())["progress"]
    process.send_signal(number)
    out, error = process.communicate(timeout=SECONDS)
    assert (process.returncode, out, error) == (0, "", "")


def test_a_mistake_of_ours_is_named_by_its_place_and_not_by_its_text(loaded, monkeypatch, caplog, capfd):
    def broken(model, text=None, ids=None, bos=False, tokens=None):
        raise ValueError(f"cannot do {text}")

    monkeypatch.setitem(calls.CALLS, "info", calls.Call(broken, bodies.Info, dict, {}))
    with running(loaded) as client:
        answer = client.post("info", {"text": SECRET})
        assert answer.status == 500
        assert answer.error.startswith("internal error: ValueError at test_server.py:")
        (line,) = lines(client.post("info", {"text": SECRET}, accept="application/x-ndjson"))
        assert line["status"] == 500
        assert client.post("ids", {"text": SECRET}).status == 200
    assert SECRET not in caplog.text
    assert SECRET not in "".join(capfd.readouterr())
    assert caplog.text.count("internal error: ValueError") == 2


def test_memory_that_is_not_there_is_one_line(loaded, monkeypatch):
    def hungry(model, text=None, ids=None, bos=False, tokens=None):
        raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 10 bytes")

    monkeypatch.setitem(calls.CALLS, "info", calls.Call(hungry, bodies.Info, dict, {}))
    with running(loaded) as client:
        answer = client.post("info", {})
        assert (answer.status, answer.error) == (422, "not enough memory for this text and model; try a shorter text")


# -- starting -----------------------------------------------------------------------------------------------------------

def test_json_tells_the_address_and_two_models():
    asked = ["serve", "--model", "demo", "--model", "planted", "--json", "--port", "0"]
    process = subprocess.Popen([sys.executable, "-m", "inspector", *asked], cwd=ROOT, text=True, stdout=subprocess.PIPE)
    try:
        told = json.loads(process.stdout.readline())
        assert told["models"] == ["demo", "planted"]
        client = Client(int(told["address"].rstrip("/").rpartition(":")[2]))
        assert [model["name"] for model in client.get("/api/models").json["models"]] == ["demo", "planted"]
    finally:
        process.terminate()
        assert process.wait(SECONDS) == 0


def test_without_the_extra_it_says_how_to_get_it(capsys, monkeypatch):
    for name in ("fastapi", "uvicorn"):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, name, None)
            assert main(["serve", "--model", "demo", "--port", "0"]) == 2
            error = capsys.readouterr().err
            assert error.count("\n") == 1
            assert name in error
            assert 'pip install -c constraints.txt -e ".[serve]"' in error


def test_a_port_that_is_taken_is_one_line(capsys):
    with serving.bind("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        assert main(["serve", "--model", "demo", "--port", str(port)]) == 2
    error = capsys.readouterr().err
    assert error == (f"inspector: cannot listen on 127.0.0.1:{port}: Address already in use; choose another --host or "
                     "--port\n")


def test_it_listens_to_this_machine_alone():
    with serving.bind("127.0.0.1", 0) as listening:
        assert listening.getsockname()[0] == "127.0.0.1"
    assert inspect.signature(inspector.serve).parameters["host"].default == "127.0.0.1"
