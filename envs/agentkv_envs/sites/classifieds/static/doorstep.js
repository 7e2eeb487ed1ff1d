// The site works without scripts, except for asking before something is lost and suggesting places.
document.addEventListener("submit", (event) => {
  const question = event.target.dataset.confirm;
  if (question && !window.confirm(question)) event.preventDefault();
});

async function suggest(field) {
  const list = field.closest(".suggest").querySelector("ul");
  const term = field.value.trim();
  const answer = await fetch(`/index.php?page=ajax&action=location&term=${encodeURIComponent(term)}`);
  const names = (await answer.json()).filter((name) => name !== term);
  if (field.value.trim() !== term) return;
  list.replaceChildren(...names.map((name) => {
    const item = document.createElement("li");
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = name;
    button.addEventListener("click", () => {
      field.value = name;
      list.hidden = true;
      list.replaceChildren();
    });
    item.append(button);
    return item;
  }));
  list.hidden = names.length === 0;
}

for (const field of document.querySelectorAll("[data-suggest]")) {
  field.addEventListener("input", () => suggest(field));
  // Enter asks for suggestions; it must not send a form that is half filled in.
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter") event.preventDefault();
  });
}
