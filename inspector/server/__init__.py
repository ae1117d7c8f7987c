"""The live page: `inspector serve`, a page and a JSON API on this machine.

`serving.py` binds and runs; `app.py` has the routes; `bodies.py` says what a request may hold and `calls.py` which function
answers it; `work.py` is the one worker, its queue and its limits in time; `guards.py` stands before all of it, and
`connections.py` before that. FastAPI and uvicorn are an extra: only `serving.serve` can be imported without them.
"""
