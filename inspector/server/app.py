"""The routes: the page, its assets, GET /api/models, and POST /api/NAME for every call of `calls.py`.

A POST is answered with what `inspector NAME --json` prints, or, asked for application/x-ndjson, with lines as they come:
{"progress": [done, total, "layers"]} and at last {"result": ...} or {"error": line, "status": 422}. Who closes the
connection cancels the computation. Every error is {"error": line}.
"""

import inspect
import json
from contextlib import aclosing
from dataclasses import dataclass

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, Response, StreamingResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from .. import __version__
from ..errors import InspectorError
from ..record import to_json
from .calls import CALLS, call
from .front import HTML, assets, front_page
from .guards import POLICY, Guard, internal_error
from .work import BusyError, GoneError, OvertimeError, Worker

STREAM = "application/x-ndjson"


@dataclass(frozen=True)
class Limits:
    """What one server does at most."""

    max_tokens: int = 1024      # of a text
    max_body: int = 1_000_000   # bytes of a request
    queue: int = 4              # requests that wait while one computes
    timeout: float = 60         # seconds that one may compute


class Error(BaseModel):
    """What went wrong, in one line."""

    error: str


def told(error):
    """(status, line) of whatever ends a computation early."""
    if isinstance(error, InspectorError):
        return 422, " ".join(str(error).split())
    if isinstance(error, OvertimeError):
        return 504, f"this took longer than {error.args[0]:g} seconds and was stopped; ask for less, or start with --timeout"
    if isinstance(error, BusyError):
        return 503, f"busy: one request computes and {error.args[0]} wait, as many as may; try again"
    if isinstance(error, MemoryError) or "allocate memory" in str(error) or "out of memory" in str(error):
        return 422, "not enough memory for this text and model; try a shorter text"
    return 500, internal_error(error)


def failed(status, line, headers=None, **more):
    """The answer {"error": line}."""
    return Response(to_json({"error": line, **more}, indent=None), status, headers, media_type="application/json")


def described(name, model):
    """One entry of /api/models."""
    config = model.config
    return {"name": name, "n_layer": config.n_layer, "n_head": config.n_head, "d_model": config.d_model,
            "d_head": config.d_head, "n_positions": config.n_positions, "vocab_size": config.vocab_size,
            "dtype": model.dtype, "device": model.device, "tokenizer": model.tokenizer is not None}


def refused_body(error):
    """One line for a body that is no JSON or not what the route takes; the values themselves are not repeated."""
    first = error.errors()[0]
    where = ".".join(str(part)[:40] for part in first["loc"][1:] if not isinstance(part, int))
    if first["type"] == "json_invalid":
        return "the body is not valid JSON"
    return f"{where or 'the body'}: {first['msg'][:1].lower()}{first['msg'][1:]}"


async def lines_of(worker, job, gone):
    """The answer of a job as NDJSON, line by line."""
    try:
        async with aclosing(worker.watch(job, gone)) as steps:
            async for at in steps:
                yield json.dumps({"progress": at}) + "\n"
        yield '{"result": ' + job.future.result() + "}\n"
    except GoneError:
        return
    except Exception as error:
        status, line = told(error)
        yield to_json({"error": line, "status": status}, indent=None) + "\n"


async def answer_of(worker, job, gone):
    """The answer of a job, whole. Raises GoneError, OvertimeError, and whatever the job raised."""
    async with aclosing(worker.watch(job, gone)) as steps:
        async for _ in steps:
            pass
    return job.future.result()


def add_call(app, name, models, worker, limits):
    """Add POST /api/NAME."""
    one = CALLS[name]

    async def endpoint(request: Request, body: one.body):
        source = next(iter(models)) if body.model is None else body.model
        if source not in models:
            return failed(422, f"there is no such model here; expected one of {', '.join(models)}")
        arguments = body.model_dump(exclude={"model"})
        try:
            job = worker.submit(lambda progress: call(name, models[source], arguments, limits.max_tokens, progress))
            if STREAM in request.headers.get("accept", ""):
                return StreamingResponse(lines_of(worker, job, request.is_disconnected), media_type=STREAM)
            return Response(await answer_of(worker, job, request.is_disconnected), media_type="application/json")
        except GoneError:
            return Response(status_code=499)        # nobody reads it
        except BusyError as error:
            return failed(*told(error), {"retry-after": "1"}, waiting=error.args[0])
        except Exception as error:
            return failed(*told(error))

    errors = {status: {"model": Error, "description": text} for status, text in (
        (422, "The arguments cannot be used"), (503, "Busy: as many wait as may"), (504, "It took too long"))}
    app.add_api_route(f"/api/{name}", endpoint, methods=["POST"], name=name, summary=one.body.__doc__, responses=errors,
                      description=inspect.getdoc(one.function), response_class=Response, openapi_extra={
                          "requestBody": {"content": {"application/json": {"example": one.example}}}})


def add_asset(app, address, content, kind, headers=None):
    """Add one file of the package at an address of its own: nothing of a request ever becomes a path."""
    async def endpoint():
        return Response(content, media_type=kind, headers=headers)

    app.add_api_route(address, endpoint, methods=["GET"], include_in_schema=False, response_class=Response)


def make_app(models, limits, addresses):
    """(the guarded ASGI application, its Worker). models: {name: Model}; addresses: of `guards.own_addresses`."""
    app = FastAPI(title="inspector", version=__version__, docs_url=None, redoc_url=None, redirect_slashes=False,
                  description="Each route has the name, the arguments and the defaults of a function of the library.")
    worker = Worker(limits.queue, limits.timeout)

    @app.exception_handler(HTTPException)
    async def on_http(request, error):
        return failed(error.status_code, str(error.detail).lower(), error.headers)

    @app.exception_handler(RequestValidationError)
    async def on_body(request, error):
        return failed(422, refused_body(error))

    @app.get("/api/models", summary="The models that were loaded, and the limits")
    async def models_here():
        """The models this server was started with, the first of them the default, and what it does at most."""
        return {"version": __version__, "models": [described(name, model) for name, model in models.items()],
                "limits": {"max_tokens": limits.max_tokens, "max_body": limits.max_body, "queue": limits.queue,
                           "timeout": limits.timeout}}

    for name in CALLS:
        add_call(app, name, models, worker, limits)
    for asset in assets():
        add_asset(app, *asset)
    page, hashed = front_page()
    add_asset(app, "/", page, HTML, {"content-security-policy": f"{POLICY}; script-src 'self' {hashed}"})

    @app.get("/docs", include_in_schema=False)
    async def docs():
        from .docs import docs_page
        return HTMLResponse(docs_page(app.openapi()))

    return Guard(app, addresses, limits.max_body), worker
