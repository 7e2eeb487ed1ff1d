"""A tiny web server with awkward pages, for what the embedded shop does not have."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from agentkv_envs import Task, WebEnv, resolve
from agentkv_envs.types import Observation, StepResult

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
    "/slow-popup": "<title>Opener</title><a href='/slow-page' target=_blank>Link</a>"
    "<a href='/slow-page' target=_blank rel=opener>Opener link</a>"
    "<form action='/slow-page' target=_blank><button>Form</button></form>"
    "<button onclick=\"window.open('/slow-page')\">Script</button>"
    "<button onclick=\"window.open('/hang-server')\">Silent</button><button>Nothing</button>",
    "/slow-page": "<title>Slow</title><h1>Slow</h1>",
    "/bare": "<title>Bare</title><a href='/drawing.svg'>Drawing</a><button onclick='document.open()'>Empty</button>",
    "/drawing.svg": "<svg xmlns='http://www.w3.org/2000/svg'><title>Drawing</title><circle r='9'/></svg>",
    "/popup": "<title>Opener</title><a href='/late' target=_blank>Open</a>",
    "/many": "<title>Many</title>"
    + "".join(f"<p>Paragraph {i} with a <a href='/p{i}'>link number {i}</a></p>" for i in range(120)),
    "/upload": "<title>Upload</title><form><label for=pic>Add photo</label><input id=pic type=file hidden "
    "onchange=\"out.textContent = this.files[0].name + ' ' + this.files[0].size\">"
    "<label>Papers <input type=file></label></form>"
    "<button onclick=\"const i = document.createElement('input'); i.type = 'file';"
    "i.onchange = () => out.textContent = 'chosen ' + i.files[0].name; i.click()\">Attach</button>"
    "<button>Other</button><p id=out>none</p>",
    "/stubborn": "<title>Stubborn</title><label>Code <input oninput=\"this.value = ''\"></label>"
    "<label>Late <input oninput=\"setTimeout(() => this.value = 'old', 30)\" value=old></label>"
    "<label>Phone <input onchange=\"this.value = this.value.replace(/(...)(....)/, '$1-$2')\"></label>"
    '<label>Plan <select onchange="this.selectedIndex = 0"><option>Basic<option>Gold</select></label>'
    "<label>Fine <select><option>One<option>Two</select></label>",
    "/stale": '<title>Stale</title><button onclick="setTimeout(() => gone.remove(), 400)">Later</button>'
    "<button id=gone>Going</button>",
    "/restless": "<title>Restless</title><p id=out>0</p><script>let n = 0;"
    "setInterval(() => out.textContent = ++n, 10)</script>",
    # What changes next waits for a thread that is held up longer than a page must be quiet.
    "/halting": "<title>Halting</title><p id=out>0</p><script>let n = 0; const tick = () => { out.textContent = ++n;"
    "setTimeout(() => { const end = performance.now() + 150; while (performance.now() < end) ;"
    " setTimeout(tick, 20) }) }; tick()</script>",
    "/polling": "<title>Polling</title><p>Still</p><script>setInterval(() => fetch('/slow'), 100)</script>",
    "/alerts": "<title>Alerts</title><button onclick=\"for (let i = 0; i < 8; i++) alert('Note ' + i)\">Many</button>"
    "<button onclick=\"while (true) alert('Again')\">Loop</button>"
    "<button onclick=\"while (confirm('Once more?')) {}\">Ask</button>",
    "/leave": "<title>Leave</title><input id=x><a href='/late'>Away</a><script>onbeforeunload = () => 'sure?'</script>",
    "/clock": "<title>Clock</title><p id=out></p><script>out.textContent = new Date().toISOString().slice(0, 10)"
    " + ' ' + (Date.now() - new Date() < 50) + ' ' + new Date(0).getTime() + ' ' + (new Date() instanceof Date)"
    "</script>",
    "/menu": "<title>Menu</title><style>ul ul {display: none} li:hover ul {display: block}</style><ul><li>"
    "<a href='#m'>Tools</a><ul><li><a href='/late'>Saws</a></li></ul></li></ul><p id=out></p>"
    "<script>onblur = () => out.textContent = 'blurred'</script>",
    "/slow-picture": "<title>Slow picture</title><h1>Here</h1><img src='/hang-server' width=50 height=50>",
    "/other-frame": "<title>Framed</title><script>document.write(`<iframe src='http://127.0.0.1:${location.search"
    ".slice(1)}/late'></iframe>`)</script>",
    "/vanishing-frame": "<title>Vanishing</title><p>Stays</p><iframe id=f src='/hang-server'></iframe>"
    "<script>setTimeout(() => f.remove(), 120)</script>",
    "/size": "<title>Size</title><p id=out></p><script>out.textContent = `${innerWidth} x ${innerHeight}`</script>",
    "/repeats": "<title>Repeats</title><ul>" + "<li>Sold out</li>" * 5 + "<li>In stock</li></ul>",
    "/table": "<title>Table</title><table>"
    + "".join(f"<tr><td>Row {i}</td><td><a href='/r{i}'>open</a></td></tr>" for i in range(60))
    + "</table>",
    "/tall": "<title>Tall</title>"
    + "".join(f"<h2>Part {i}</h2><p style='height:300px'>Text of part {i}</p>" for i in range(60)),
    "/shadow-frames": "<title>Deep</title><iframe src='/late'></iframe>"
    '<iframe srcdoc="<p>Inner</p>" width=200></iframe>',
    "/icons": "<title>Icons</title><button title='Star'></button><button aria-label='Bin'></button>"
    "<span style='display:contents'><a href='/late'>Boxless</a></span>",
    "/huge": "<title>Huge</title><body><script>for (let i = 0; i < 21000; i++) { const p ="
    " document.createElement('p'); p.textContent = `Line ${i} ` + 'x'.repeat(90); document.body.append(p); }</script>",
    "/ten-megabytes": "<title>Ten megabytes</title><body><script>for (let i = 0; i < 5000; i++) { const p ="
    " document.createElement('p'); p.textContent = i + ' ' + 'x'.repeat(2100); document.body.append(p); }</script>",
    "/many-elements": "<title>Many elements</title>"
    + "".join(
        f"<div><a href='/e{i}'>Card {i}</a> price {i} <button>Buy</button><input aria-label='Qty {i}'>"
        f"<select aria-label='Size {i}'><option>S<option>M</select></div>"
        for i in range(100)
    ),
    "/outside": "<title>Outside</title><a href='http://example.com/'>Leave</a><img src='http://example.com/x.png'>",
}

# Seconds that the server takes for a page.
_DELAYS = {"/slow": 0.2, "/slow-page": 0.8}


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/hang-server":
            self.server.released.wait(60)  # type: ignore[attr-defined]
            return
        if self.path.startswith("/slow"):
            time.sleep(_DELAYS.get(self.path.partition("?")[0], 0.0))
        body = PAGES.get(self.path.partition("?")[0])
        data = (body or "<title>Not found</title>").encode()
        self.send_response(200 if body else 404)
        kind = "image/svg+xml" if self.path.endswith(".svg") else "text/html; charset=utf-8"
        self.send_header("content-type", kind)
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


def task_at(url: str, files: tuple[str, ...] = (), sites: tuple[str, ...] = ("shopping",)) -> Task:
    """A task that starts there, may upload these files and asks for the answer "ok"."""
    check = {"eval_types": ["string_match"], "reference_answers": {"exact_match": "ok"}}
    return Task("test-001", sites, "Look.", url, check, (), {"agentkv": {"files": list(files)}})


class Driver:
    """Steps by label, keeping the last observation."""

    def __init__(self, env: WebEnv, url: str, files: tuple[str, ...] = ()):
        self.env = env
        self.seen: Observation = env.reset(task_at(url, files))

    def do(self, text: str) -> StepResult:
        result = self.env.step(resolve(text, self.seen))
        self.seen = result.observation
        return result
