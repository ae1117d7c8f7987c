"""The live page and everything it loads: a fixed list of the package's own files, read once."""

import base64
import hashlib
from functools import cache
from importlib.resources import files

from ..pages.explorer.page import module_names
from ..pages.html import script_json

LIVE = ("live.js", "asking.js", "changes.js", "repeating.js", "running.js")
STYLES = ("report.css", "explorer.css", "live.css")
SCRIPT, STYLE, HTML = "text/javascript; charset=utf-8", "text/css; charset=utf-8", "text/html; charset=utf-8"


def imports():
    """The page's import map: the modules by the names they call each other."""
    return {"imports": {f"inspector/{name}": f"/explorer/{name}" for name in module_names()}
            | {f"live/{name}": f"/live/{name}" for name in LIVE}}


@cache
def template(name):
    """A template of the server's own pages."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    env = Environment(loader=PackageLoader("inspector.server"), autoescape=True, undefined=StrictUndefined,
                      trim_blocks=True, lstrip_blocks=True)
    return env.get_template(name)


def front_page():
    """(the live page, what its Content-Security-Policy must allow beside the server's own scripts)."""
    modules = script_json(imports())
    # Browsers take an import map only from the page itself, and a strict policy only one whose hash it names.
    digest = base64.b64encode(hashlib.sha256(modules.encode("utf-8")).digest()).decode("ascii")
    return template("live.html").render(modules=modules, styles=STYLES).encode("utf-8"), f"'sha256-{digest}'"


def assets():
    """[(address, bytes, type)] of every file that is served."""
    pages, here = (files(package).joinpath("static") for package in ("inspector.pages", "inspector.server"))
    found = [(f"/explorer/{name}", pages.joinpath("explorer", name), SCRIPT) for name in module_names()]
    found += [(f"/live/{name}", here.joinpath(name), SCRIPT) for name in LIVE]
    found += [(f"/{name}", pages.joinpath(name), STYLE) for name in ("report.css", "explorer.css")]
    found += [(f"/{name}", here.joinpath(name), STYLE) for name in ("live.css", "docs.css")]
    return [(address, file.read_bytes(), kind) for address, file, kind in found]
