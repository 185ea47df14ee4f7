// Adds the copy buttons. The pages work without this script.
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
