"""A Chromium for the tests of pages: found, started without a network, and watched."""

import json
import os
import shutil
from contextlib import contextmanager

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
             "--disable-sync", "--no-first-run", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]


def missing(reason):
    """Without a browser the tests fail where everything is said to be installed, and skip elsewhere."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


@contextmanager
def chromium():
    """A headless Chromium with a profile of its own, or `missing`."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing("needs playwright, which is not installed")
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        missing(f"needs Chromium: none of {', '.join(NAMES)} is on the PATH")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


def much(page, function):
    """What a function in JavaScript returns, as one string on its way: Playwright looks at each part of what is none."""
    return json.loads(page.evaluate(f"() => JSON.stringify(({function})())"))


@contextmanager
def opened(browser, place, *, width=1280, height=900, scheme="light", fragment="", prepare=lambda page: None, known=(),
           **context):
    """A page from disk, or from an address of this machine. Afterwards: no console message of warning or worse, no script
    error, no request but to files, or to the page's own server.

    prepare: what is done to the page before it opens; known: parts of faults that the test itself brings about; the rest
    is the browser context's.
    """
    served = isinstance(place, str)
    ours = (place, "data:", "blob:") if served else ("file:", "data:")
    faults = []
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme, **context)
    page = context.new_page()
    page.on("console", lambda message: faults.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("dialog", lambda dialog: (faults.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    page.on("request", lambda request: None if request.url.startswith(ours) else faults.append(request.url))

    def failed(request):
        # A request that the page cancels fails, and so, says Chromium, does a streamed answer that was read to its end.
        if not (served and request.failure == "net::ERR_ABORTED" and "/api/" in request.url):
            faults.append(f"failed: {request.url[:200]}")

    page.on("requestfailed", failed)
    prepare(page)
    try:
        page.goto((place if served else place.resolve().as_uri()) + fragment)
        yield page
    finally:
        context.close()
    assert [fault for fault in faults if not any(part in fault for part in known)] == []
