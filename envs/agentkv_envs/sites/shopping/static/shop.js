// The shop works without scripts. These are comforts: sorting at once, asking before something is lost, a toast in
// place of a new page, prices of the chosen option, delivery times.
const json = { headers: { accept: "application/json" } };

document.addEventListener("change", (event) => {
  if (event.target.matches("[data-submit]")) event.target.form.submit();
});
document.addEventListener("submit", (event) => {
  const question = event.target.dataset.confirm;
  if (question && !window.confirm(question)) event.preventDefault();
});

// A toast stays until the next thing the customer does, however long that takes.
function toast(answer) {
  document.querySelector(".toast")?.remove();
  const box = document.createElement("div");
  box.className = answer.added ? "toast" : "toast error";
  box.setAttribute("role", "status");
  box.append(answer.text);
  if (answer.link) {
    const link = document.createElement("a");
    link.href = answer.link;
    link.textContent = "shopping cart";
    box.append(" ", link);
  }
  document.body.append(box);
}
for (const kind of ["pointerdown", "keydown", "input"]) {
  document.addEventListener(kind, (event) => {
    const box = document.querySelector(".toast");
    if (box && !box.contains(event.target)) box.remove();
  }, true);
}

function productPage(info) {
  const form = document.getElementById("product_addtocart_form");
  const choices = JSON.parse(form.dataset.choices);
  const notice = info.querySelector(".notice");

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const response = await fetch(form.action, { ...json, method: "POST", body: new URLSearchParams(new FormData(form)) });
    if (response.redirected || !response.ok) return form.submit();
    const answer = await response.json();
    document.querySelector(".links .cart").textContent = `Cart (${answer.count})`;
    toast(answer);
  });

  form.addEventListener("change", () => {
    const colour = form.querySelector("[name=colour]:checked")?.value ?? "";
    const size = form.elements.size?.value ?? "";
    if (colour) info.querySelector(".gallery img").src = `/media/${info.dataset.product}.png?colour=${colour}`;
    const choice = choices.find((c) => c.colour === colour && c.size === size);
    if (!choice) return;
    const stock = info.querySelector(".facts .stock");
    info.querySelector(".facts .price").textContent = choice.price;
    stock.textContent = choice.stock ? `${choice.stock} in stock` : "sold out";
    stock.classList.toggle("out", !choice.stock);
    form.querySelector("button").disabled = !choice.stock;
    if (!notice) return;
    notice.hidden = choice.stock > 0;
    notice.elements.colour.value = colour;
    notice.elements.size.value = size;
  });

  const delivery = info.querySelector(".delivery");
  delivery?.addEventListener("submit", async (event) => {
    event.preventDefault();
    const arrival = info.querySelector(".arrival");
    arrival.textContent = "Asking the carrier …";
    const response = await fetch(`${delivery.action}?${new URLSearchParams(new FormData(delivery))}`, json);
    arrival.textContent = (await response.json()).text;
  });
}
const info = document.querySelector("[data-product]");
if (info) productPage(info);
