"""A tiny web server with awkward pages, for what the embedded shop does not have."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from agentkv_envs import Task

PAGES = {
    "/": "<title>Start</title><h1>Start</h1><a href='/hang-script'>Busy</a> <a href='/hang-server'>Silent</a>"
    "<button onclick='while(true){}'>Freeze</button>",
    "/hang-script": "<title>Busy</title><h1>Busy</h1><script>while (true) {}</script>",
    "/dialogs": "<title>Dialogs</title><p id=out>nothing</p>"
    "<button onclick=\"alert('Saved!')\">Alert</button>"
    "<button onclick=\"out.textContent = confirm('Sure?') ? 'yes' : 'no'\">Confirm</button>"
    "<button onclick=\"out.textContent = prompt('Name?', 'Ann')\">Prompt</button>",
    "/late": "<title>Late</title><button onclick=\"setTimeout(() => out.textContent = 'done', 60)\">Go</button>"
    "<button onclick=\"fetch('/slow').then(r => r.text()).then(t => out.textContent = t)\">Fetch</button>"
    "<p id=out>idle</p>",
    "/slow": "fetched",
    "/covered": "<title>Covered</title><button>Under</button>"
    "<div style='position:fixed;inset:0;background:#fff8' onclick='1'></div>",
    "/form": "<title>Form</title><form action='/'><label>Age <input type=number required min=1></label>"
    "<label>Plan <select><option>Basic</option><option>Gold [plus]</option></select></label>"
    "<label><input type=checkbox checked> News</label><button>Send</button></form>",
    "/frames": "<title>Frames</title><iframe srcdoc='<button>Inside</button>'></iframe><div id=host></div>"
    "<script>host.attachShadow({mode:'open'}).innerHTML = '<button>Shadow</button>'</script>",
    "/popup": "<title>Opener</title><a href='/late' target=_blank>Open</a>",
    "/many": "<title>Many</title>"
    + "".join(f"<p>Paragraph {i} with a <a href='/p{i}'>link number {i}</a></p>" for i in range(120)),
    "/outside": "<title>Outside</title><a href='http://example.com/'>Leave</a><img src='http://example.com/x.png'>",
}


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/hang-server":
            self.server.released.wait(60)  # type: ignore[attr-defined]
            return
        if self.path == "/slow":
            time.sleep(0.2)
        body = PAGES.get(self.path.partition("?")[0])
        data = (body or "<title>Not found</title>").encode()
        self.send_response(200 if body else 404)
        self.send_header("content-type", "text/html; charset=utf-8")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Be quiet."""


@contextmanager
def awkward_site() -> Iterator[str]:
    """The address of the server while it runs."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    server.released = threading.Event()  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.released.set()  # type: ignore[attr-defined]
        server.shutdown()
        server.server_close()


def task_at(url: str) -> Task:
    """A task that starts there and asks for the answer "ok"."""
    check = {"eval_types": ["string_match"], "reference_answers": {"exact_match": "ok"}}
    return Task("test-001", ("shopping",), "Look.", url, check, (), {})
