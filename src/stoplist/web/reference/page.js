"use strict";

// Everything on the page can be read without this: it adds buttons to copy, and keeps the contents in step.
{
  const said = document.querySelector(".said");

  for (const figure of document.querySelectorAll(".code")) {
    const label = figure.querySelector("figcaption").textContent;
    const text = figure.querySelector("pre");
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "Copy";
    button.setAttribute("aria-label", `Copy: ${label}`);
    button.addEventListener("click", async () => {
      let word = "Copied";
      try {
        await navigator.clipboard.writeText(text.textContent.trimEnd());
      } catch {
        getSelection().selectAllChildren(text);
        word = "Selected";
      }
      button.textContent = said.textContent = word;
      setTimeout(() => { button.textContent = "Copy"; said.textContent = ""; }, 2000);
    });
    figure.append(button);
  }

  const contents = document.querySelector(".contents");
  const wide = matchMedia("(min-width: 64rem)");
  const fold = () => { contents.open = wide.matches; };
  wide.addEventListener("change", fold);
  fold();
  contents.addEventListener("click", (event) => {
    if (event.target.closest("a") && !wide.matches) contents.open = false;
  });

  const links = new Map([...contents.querySelectorAll("a")].map((link) => [link.hash.slice(1), link]));
  const headings = [...document.querySelectorAll("h2[id], h3[id]")].filter((heading) => links.has(heading.id));
  let current = null;
  const mark = () => {
    const passed = headings.filter((heading) => heading.getBoundingClientRect().top < 120);
    const link = links.get(passed.at(-1)?.id) ?? null;
    if (link === current) return;
    current?.removeAttribute("aria-current");
    link?.setAttribute("aria-current", "location");
    current = link;
  };
  let waits = false;
  addEventListener("scroll", () => {
    if (waits) return;
    waits = true;
    requestAnimationFrame(() => { waits = false; mark(); });
  }, { passive: true });
  mark();

  addEventListener("beforeprint", () => {
    for (const details of document.querySelectorAll("details")) details.open = true;
  });
}
