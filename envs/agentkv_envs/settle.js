// Installed in every document before its own scripts: knows when the page has come to rest, and tells about it.
(() => {
  if (window.__agentkv) return;
  const state = { last: performance.now(), pending: 0, id: Math.random().toString(36).slice(2) };
  const watch = () => new MutationObserver(() => { state.last = performance.now(); })
    .observe(document, { subtree: true, childList: true, attributes: true, characterData: true });
  watch();
  const settled = (promise) => { state.pending += 1; const done = () => { state.pending -= 1; }; promise.then(done, done); return promise; };
  const fetched = window.fetch;
  if (fetched) window.fetch = function (...args) { return settled(fetched.apply(this, args)); };
  const send = XMLHttpRequest.prototype.send;
  XMLHttpRequest.prototype.send = function (...args) {
    state.pending += 1;
    this.addEventListener("loadend", () => { state.pending -= 1; }, { once: true });
    return send.apply(this, args);
  };
  const loaded = () => {
    const entry = performance.getEntriesByType("navigation")[0];
    return entry && entry.domContentLoadedEventEnd > 0 ? entry.domContentLoadedEventEnd : performance.now();
  };
  const pictures = () => [...document.images].some((image) => {
    if (image.complete) return false;
    const box = image.getBoundingClientRect();
    return box.bottom > 0 && box.top < innerHeight;
  });
  const line = (text) => (text || "").replace(/\s+/g, " ").trim();
  const labelOf = (e) => line(e.labels && e.labels[0] ? e.labels[0].textContent : "") || line(e.getAttribute("aria-label"));
  // A picture is recognised in the accessibility tree by an invisible number at the end of its alternative text.
  const marks = new WeakMap();
  let pictured = 0;
  const digits = (n) => [...n.toString(16)].map((d) => String.fromCharCode(0xfe00 + parseInt(d, 16))).join("");
  const marked = (image) => {
    if (!marks.has(image)) marks.set(image, digits(pictured++));
    const mark = marks.get(image);
    if (!image.alt.includes("\u2063")) image.alt += `\u2063${mark}`;
    return [mark, image.currentSrc || image.src];
  };
  const report = (loading, mark) => ({
    loading,
    document: state.id,
    title: document.title,
    bare: !document.body,
    nodes: document.getElementsByTagName("*").length,
    canGoBack: window.navigation ? navigation.canGoBack : history.length > 1,
    invalid: [...document.querySelectorAll(":user-invalid")].filter((e) => e.validationMessage)
      .map((e) => `${labelOf(e) ? `${labelOf(e)}: ` : ""}${e.validationMessage}`),
    images: mark ? [...document.images].filter((image) => image.src).map(marked) : [],
    inputs: [...document.querySelectorAll("input[type=file]")]
      .map((e) => ({ label: labelOf(e) || line(e.title) || e.name || "file", value: [...e.files].map((f) => f.name).join(", ") })),
  });
  // Resolves when no DOM change happened for `quiet` ms, no request is under way and visible pictures are there;
  // or after `cap` ms. `since` is when the action began (ms since the epoch): a document younger than that is the
  // action's result already, so half the quiet time is enough. `mark`: whether to mark and tell pictures.
  const settle = async ({ quiet, cap, since, mark }) => {
    const begun = performance.now();
    const fresh = performance.timeOrigin >= since;
    let floor = fresh ? 0 : begun;
    let before = begun;
    const enough = fresh ? quiet / 2 : quiet;
    for (;;) {
      const now = performance.now();
      // A thread that was held up as long as the quiet time has seen nothing of it: what would have changed is late too.
      if (!fresh && now - before >= quiet) floor = now;
      before = now;
      const ready = document.readyState !== "loading";
      const rest = Math.max(state.last, floor, ready ? loaded() : now);
      if (ready && now - rest >= enough && state.pending <= 0 && !pictures()) return report(false, mark);
      if (now - begun >= cap) return report(!ready || state.pending > 0, mark);
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
  };
  Object.defineProperty(window, "__agentkv", { value: { settle }, enumerable: false });
})();
