"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const at = (id) => document.getElementById(id);
  const pick = at("pick");
  let episode = 0;
  let step = 0;

  const mib = (bytes) => (bytes / 1048576).toFixed(1) + " MiB";
  const ms = (value) => Math.round(value) + " ms";
  const count = (value) => value.toLocaleString("en");
  const FACTS = [
    ["KV held", "resident_kv_bytes", mib], ["KV peak so far", "peak_kv_bytes", mib],
    ["prompt tokens", "prompt_tokens", count], ["of these reused", "reused_tokens", count],
    ["new tokens", "new_tokens", count], ["generated tokens", "generated_tokens", count],
    ["evicted tokens", "evicted_tokens", count], ["quantised tokens", "quantized_tokens", count],
    ["browser", "browser_ms", ms], ["prefill", "prefill_ms", ms], ["decode", "decode_ms", ms],
    ["whole step", "total_ms", ms],
  ];

  function put(id, text) {
    at(id).hidden = !text;
    at(id).textContent = text || "";
  }

  function facts(row) {
    at("facts").replaceChildren(...FACTS.filter(([, key]) => row[key] !== null).flatMap(([name, key, format]) => {
      const term = document.createElement("dt");
      const value = document.createElement("dd");
      term.textContent = name;
      value.textContent = format(row[key]);
      return [term, value];
    }));
  }

  function picture(row) {
    const source = row.shot !== null ? data.shots[row.shot] : row.file;
    at("shot").hidden = !source;
    if (source) at("shot").src = source;
    put("noshot", source ? "" : "no screenshot of this step");
  }

  function show() {
    const run = data.episodes[episode];
    const row = Object.fromEntries(data.fields.map((name, index) => [name, run.steps[step][index]]));
    const last = step === run.steps.length - 1;
    pick.value = String(episode);
    at("position").textContent = `step ${step + 1} of ${run.steps.length}`;
    at("previous").disabled = step === 0;
    at("next").disabled = last;
    put("action", row.action || `(no action) ${row.raw}`);
    put("raw", row.action !== null && row.raw.trim() !== row.action ? `the reply: ${row.raw}` : "");
    put("error", row.error);
    put("verdict", last ? `end: ${run.outcome}${run.reason ? ` (${run.reason})` : ""}` : "");
    put("page", data.texts[row.text]);
    put("url", row.url);
    picture(row);
    facts(row);
  }

  function go(nextEpisode, nextStep) {
    episode = nextEpisode;
    step = Math.max(0, Math.min(nextStep, data.episodes[episode].steps.length - 1));
    show();
  }

  if (data.episodes.length === 0) return;
  data.episodes.forEach((run, index) => {
    pick.add(new Option(`${run.task} · ${run.arm} · ${run.outcome}`, String(index)));
  });
  pick.addEventListener("change", () => go(Number(pick.value), 0));
  at("previous").addEventListener("click", () => go(episode, step - 1));
  at("next").addEventListener("click", () => go(episode, step + 1));
  at("viewer").addEventListener("keydown", (event) => {
    if (event.target === pick) return;
    if (event.key === "ArrowLeft") go(episode, step - 1);
    if (event.key === "ArrowRight") go(episode, step + 1);
  });
  document.querySelectorAll("button[data-episode]").forEach((button) => {
    button.addEventListener("click", () => {
      const index = data.episodes.findIndex((run) => run.id === button.dataset.episode);
      if (index < 0) return;
      go(index, 0);
      at("viewer").scrollIntoView({ behavior: "smooth" });
    });
  });
  show();
})();
