// The forum's few comforts: voting without leaving the page, sorting at once, loading the rest of a thread.

const toast = (text, kind) => {
  const note = document.createElement("div");
  note.className = `toast ${kind}`;
  note.setAttribute("role", kind === "error" ? "alert" : "status");
  note.textContent = text;
  document.getElementById("toasts").replaceChildren(note);
};

// Toasts go with the next thing one does, not after a time: a page at rest stays as it is.
const clear = () => document.querySelectorAll(".toast").forEach((note) => note.remove());
for (const kind of ["pointerdown", "keydown", "input"]) document.addEventListener(kind, clear, true);

// The buttons live in an open shadow root; the score stays in the document, where the form's class tells the vote.
class VoteBox extends HTMLElement {
  connectedCallback() {
    const root = this.attachShadow({ mode: "open" });
    root.innerHTML = `<style>
      :host { display: flex; flex-direction: column; align-items: center; gap: 2px; font-weight: 700; }
      button { width: 30px; height: 26px; border: 0; border-radius: 8px; background: transparent; cursor: pointer; padding: 0; }
      button::before { content: ""; display: inline-block; border: 8px solid transparent; }
      .up::before { border-bottom-color: #9a938f; border-top: 0; } .down::before { border-top-color: #9a938f; border-bottom: 0; }
      button:hover { background: #efe7e2; }
      .up[aria-pressed="true"]::before { border-bottom-color: #d1495b; } .down[aria-pressed="true"]::before { border-top-color: #3d5a98; }
    </style><button type="button" class="up" aria-label="Upvote"></button><slot></slot><button type="button" class="down" aria-label="Downvote"></button>`;
    root.querySelector(".up").onclick = () => this.vote(this.choice === 1 ? 0 : 1);
    root.querySelector(".down").onclick = () => this.vote(this.choice === -1 ? 0 : -1);
    this.show();
  }

  get form() { return this.closest("form"); }

  get choice() {
    const list = this.form.classList;
    return list.contains("vote--user-upvoted") ? 1 : list.contains("vote--user-downvoted") ? -1 : 0;
  }

  show() {
    this.shadowRoot.querySelector(".up").setAttribute("aria-pressed", String(this.choice === 1));
    this.shadowRoot.querySelector(".down").setAttribute("aria-pressed", String(this.choice === -1));
  }

  async vote(choice) {
    const answer = await (await fetch(this.form.action, { method: "POST", body: new URLSearchParams({ choice }) })).json();
    if (answer.error) { toast(answer.error, "error"); return; }
    this.form.className = { 1: "vote vote--user-upvoted", 0: "vote", "-1": "vote vote--user-downvoted" }[answer.choice];
    this.querySelector(".vote__net-score").textContent = answer.score;
    this.show();
    toast(answer.message, "");
  }
}
customElements.define("vote-box", VoteBox);

document.addEventListener("change", (event) => {
  if (event.target.matches("[data-go]")) window.location.assign(event.target.value);
});

document.addEventListener("submit", (event) => {
  const question = event.target.dataset.confirm;
  if (question && !window.confirm(question)) event.preventDefault();
});

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-more]");
  if (!button) return;
  button.disabled = true;
  const piece = document.createElement("template");
  piece.innerHTML = await (await fetch(button.dataset.more)).text();
  // One list names the comments of the whole thread in reading order.
  const added = piece.content.querySelector(".order");
  const order = document.querySelector(".order");
  button.replaceWith(piece.content);
  added.remove();
  order.setAttribute("aria-owns", `${order.getAttribute("aria-owns")} ${added.getAttribute("aria-owns")}`);
});
