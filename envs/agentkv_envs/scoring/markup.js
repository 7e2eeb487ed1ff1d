/* What evaluators read off a page. Selectors are those of the benchmark's Magento shop and Postmill forum, and of the embedded shop. */
({
  // Text of the first element that matches, hidden text too.
  text: selector => document.querySelector(selector)?.textContent ?? "",

  // Price of the product on the page, as a number without its currency sign.
  price: () => {
    const shown = document.querySelector(".product-info-main .product-info-price .price")?.innerText ?? "";
    return String(parseFloat(shown.replace(/[^\d.]/g, "")) || 0);
  },

  // "Reviews 12" on the product page's tab.
  reviewCount: () => {
    const tab = document.querySelector("#tab-label-reviews-title")?.innerText ?? "";
    return String(parseInt(tab.match(/\d+/)?.[0] ?? "0", 10));
  },

  // Stars of the product on the page, in percent.
  rating: () => String(parseFloat(document.querySelector(".rating-result")?.title ?? "") || 0),

  // Values of the product's details whose name holds one of the alternatives.
  attributes: wanted => {
    const terms = wanted.toLowerCase().split(" |or| ");
    const rows = document.querySelectorAll("#productDetails_detailBullets_sections1 tr, table.specs tr");
    return [...rows]
      .filter(row => row.children.length > 1 && terms.some(t => row.children[0].innerText.toLowerCase().includes(t)))
      .map(row => row.children[1].innerText)
      .join(", ");
  },

  // Products of the order on the page.
  orderLines: () =>
    [...document.querySelectorAll("#my-orders-table tbody")].map(body => {
      const cell = name => body.querySelector(`td.${name}`);
      const titles = [...body.querySelectorAll("td.name dl dt")];
      return {
        name: cell("name")?.innerText.trim() ?? "",
        sku: cell("sku")?.innerText.trim() ?? "",
        qty: parseInt(cell("qty")?.innerText.match(/\d+/)?.[0] ?? "0", 10),
        options: Object.fromEntries(titles.map(t => [t.innerText.trim(), t.nextElementSibling?.innerText.trim() ?? ""])),
      };
    }),

  // The newest comment of a user on the page: its text and the name above it (that of the post where it is the first).
  latestComment: user => {
    const main = document.querySelector("#main") ?? document;
    const name = node => node?.querySelector(".fg-inherit")?.innerText.trim() ?? "";
    const time = node => Date.parse(node.querySelector("time")?.dateTime ?? "") || 0;
    const mine = [...main.querySelectorAll(".comment")].filter(node => name(node) === user);
    if (!mine.length) return {content: "", parent: ""};
    const newest = mine.reduce((best, node) => (time(node) > time(best) ? node : best));
    const above = newest.parentElement?.closest(".comment");
    return {
      content: newest.querySelector(".comment__content, .comment__body")?.innerText.trim() ?? "",
      parent: above ? name(above) : name(main),
    };
  },
})
