"use strict";

// The page works without this script, which adds copy buttons and marks the current heading in the contents.
{
  const announcement = document.querySelector(".announcement");

  for (const figure of document.querySelectorAll(".code")) {
    const label = figure.querySelector("figcaption").textContent;
    const text = figure.querySelector("pre");
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "Copy";
    button.setAttribute("aria-label", `Copy: ${label}`);
    button.addEventListener("click", async () => {
      let result = "Copied";
      try {
        await navigator.clipboard.writeText(text.textContent.trimEnd());
      } catch {
        getSelection().selectAllChildren(text);
        result = "Selected";
      }
      button.textContent = announcement.textContent = result;
      setTimeout(() => { button.textContent = "Copy"; announcement.textContent = ""; }, 2000);
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
  let isPending = false;
  addEventListener("scroll", () => {
    if (isPending) return;
    isPending = true;
    requestAnimationFrame(() => { isPending = false; mark(); });
  }, { passive: true });
  mark();

  addEventListener("beforeprint", () => {
    for (const details of document.querySelectorAll("details")) details.open = true;
  });
}
