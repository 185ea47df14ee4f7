// Small comforts. The pages work without this script.

// Shows the copy buttons.
for (const button of document.querySelectorAll("button[data-copies]")) {
  const source = document.getElementById(button.dataset.copies);
  if (!source || !navigator.clipboard) continue;
  button.hidden = false;
  button.addEventListener("click", async () => {
    const before = button.firstChild.textContent;
    try {
      await navigator.clipboard.writeText(source.textContent);
      button.firstChild.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(source);
      button.firstChild.textContent = "Selected";
    }
    setTimeout(() => (button.firstChild.textContent = before), 2000);
  });
}

// Shortens long lists of boxes to those that contain a text.
for (const finder of document.querySelectorAll("input[data-finds]")) {
  finder.hidden = false;
  finder.addEventListener("input", () => {
    const text = finder.value.trim().toLowerCase();
    for (const box of finder.parentElement.querySelectorAll("label.box")) {
      box.hidden = !box.textContent.toLowerCase().includes(text);
    }
  });
  // Enter would send the whole form.
  finder.addEventListener("keydown", (event) => event.key === "Enter" && event.preventDefault());
}

// Refuses a file that the server would refuse after a part of it was sent.
for (const field of document.querySelectorAll("input[data-max-bytes]")) {
  field.addEventListener("change", () => {
    const isLarge = [...field.files].some((file) => file.size > Number(field.dataset.maxBytes));
    field.setCustomValidity(isLarge ? "The file is larger than this page accepts." : "");
    field.reportValidity();
  });
}

// Keeps the progress of a server's work up to date. Focus and scrolling stay as they are; once the work has ended, the
// whole page is loaded again.
async function follow(live) {
  const answer = await fetch(location.pathname, { cache: "no-store", redirect: "error" });
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  if (answer.status >= 500) return;
  const now = page.querySelector("[data-live]");
  if (!now) return location.replace(location.pathname);
  const [before, after] = [live.querySelector("progress"), now.querySelector("progress")];
  const isSame = page.querySelector("h1").textContent === document.querySelector("h1").textContent;
  if (!isSame || !before || !after) return location.replace(location.pathname);
  for (const { name, value } of after.attributes) before.setAttribute(name, value);
  const [text, news] = [before.nextElementSibling, after.nextElementSibling];
  if (text.textContent !== news.textContent) text.textContent = news.textContent;
}

for (const live of document.querySelectorAll("[data-live]")) {
  const again = () => setTimeout(() => follow(live).catch(() => {}).finally(again), Number(live.dataset.live));
  again();
}

// Adds the local time to each time, which is UTC.
const localDay = new Intl.DateTimeFormat("sv", { year: "numeric", month: "2-digit", day: "2-digit" });
const localTime = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", timeZoneName: "short" });

function inLocalTime(at) {
  const isSameDay = localDay.format(at) === at.toISOString().slice(0, 10);
  return ` (${isSameDay ? "" : `${localDay.format(at)} `}${localTime.format(at)})`;
}

function localTimeBeside(element) {
  const local = document.createElement("span");
  local.className = "local";
  element.after(local);
  return local;
}

for (const time of document.querySelectorAll("time[datetime]")) {
  const at = new Date(time.dateTime);
  if (at.getTimezoneOffset()) localTimeBeside(time).textContent = inLocalTime(at);
}
for (const field of document.querySelectorAll('input[type="datetime-local"]')) {
  const local = localTimeBeside(field);
  const show = () => {
    const at = new Date(`${field.value}Z`);
    local.textContent = at.getTimezoneOffset() ? inLocalTime(at).trim() : "";
  };
  field.addEventListener("input", show);
  show();
}
for (const words of document.querySelectorAll("[data-local-zone]")) {
  if (!document.querySelector(".local:not(:empty)")) continue;
  words.textContent = ` Times in parentheses are local (${localTime.resolvedOptions().timeZone}).`;
}
