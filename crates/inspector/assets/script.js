// Keeps the parts of a page up to date. Every page also works without this script.
"use strict";
(() => {
  const { changes, every } = document.body.dataset;
  const state = document.getElementById("state");
  const say = (text) => { if (state) state.textContent = text; };
  let running = false;
  let again = false;

  const refresh = async () => {
    if (running) { again = true; return; }
    running = true;
    try {
      const reply = await fetch(location.href, { credentials: "same-origin" });
      if (!reply.ok) throw new Error(String(reply.status));
      const page = new DOMParser().parseFromString(await reply.text(), "text/html");
      for (const part of document.querySelectorAll("[data-part]")) {
        const fresh = page.getElementById(part.id);
        // A part in which somebody works stays as it is.
        if (!fresh || part.contains(document.activeElement) || part.innerHTML === fresh.innerHTML) continue;
        part.replaceWith(fresh);
      }
      say("live");
    } catch {
      say("not up to date");
    } finally {
      running = false;
      if (again) { again = false; setTimeout(refresh, 250); }
    }
  };

  if (changes) {
    const source = new EventSource(changes);
    source.onopen = () => say("live");
    source.onmessage = refresh;
    source.onerror = () => say("not connected");
  }
  if (every) {
    say("live");
    setInterval(() => { if (!document.hidden) refresh(); }, Number(every) * 1000);
  }
})();
