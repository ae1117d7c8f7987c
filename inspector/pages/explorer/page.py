"""The explorer as one file: styles, modules and the stored texts inside it. It opens from disk and fetches nothing."""

import base64
from functools import cache
from importlib.resources import files

from ..html import render, script_json, static

PACKED = ("log", "qk", "vectors", "exact", "thumbs", "tops", "value_norms", "writes", "stream")


@cache
def module_names():
    """The names of the front end's modules: explorer.js and those it imports."""
    folder = files("inspector.pages").joinpath("static", "explorer")
    return sorted(each.name for each in folder.iterdir() if each.name.endswith(".js"))


@cache
def inlined_modules():
    """An import map whose modules are inside it: from disk a browser loads no `import "./x.js"`."""
    return {"imports": {f"inspector/{name}": "data:text/javascript;base64," + base64.b64encode(
        static(f"explorer/{name}").encode("utf-8")).decode("ascii") for name in module_names()}}


def taken_apart(bundle):
    """(bundle, parts): the packed parts of a bundle in a list, and in their places their numbers there.

    A page keeps them outside its JSON: each is read when it is needed, and never parsed as a whole.
    """
    parts = []

    def walk(value, name=None):
        if isinstance(value, dict):
            return {key: walk(each, "packed" if name == "cosines" else key) for key, each in value.items()}
        if isinstance(value, list):
            return [walk(each) for each in value]
        if isinstance(value, str) and name in (*PACKED, "packed"):
            parts.append(value)
            return len(parts) - 1
        return value

    return walk(bundle), parts


def explorer_page(bundle, facts):
    """The page as text. bundle: see `bundle.bundle`; facts: see `report.facts`.

    The script runs while the parts still come in: those of the head that the page opens with come first.
    """
    rest, parts = taken_apart(bundle)
    shown = bundle["texts"][0]["heads"][bundle["opening"]]
    first = {each for each in (*shown.values(), *shown.get("moves", {}).values()) if isinstance(each, str)}
    in_order = sorted(enumerate(parts), key=lambda part: part[1] not in first)
    return render("explorer.html", facts, here="explorer", thin="", explorer_css=static("explorer.css"),
                  modules=script_json(inlined_modules()), module_names=module_names(), bundle=script_json(rest),
                  parts=in_order, data=script_json({"labels": [], "maps": {}}))
