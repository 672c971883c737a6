// The page is served with the files of the package at `/palimpsest`. The parameter `server` is the URL of the server,
// and `http.allowed_origins` of the server contains the origin of the page.

import { Palimpsest } from "/palimpsest/index.js";

const parameters = new URLSearchParams(location.search);
const client = new Palimpsest({ url: parameters.get("server") ?? "http://127.0.0.1:50051", maxRetries: 0 });
const session = client.session("demo", parameters.get("session") ?? "page");
const [form, text, state, events] = ["form", "text", "state", "events"].map((id) =>
  document.getElementById(id),
);
const messages = [];

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  messages.push({ role: "user", content: text.value });
  try {
    const view = await session.sync({ model: "gpt-5", messages });
    state.textContent = `${view.messages.length} messages, ${view.tokens.total_tokens} tokens`;
    if (messages.length === 1) showEvents();
  } catch (error) {
    state.textContent = String(error);
  }
});

async function showEvents() {
  for await (const { revision, time, epoch, request_id, effect, ...content } of session.watch({
    afterRevision: 0,
  })) {
    const entry = document.createElement("li");
    entry.textContent = `${revision} ${Object.keys(content)}`;
    events.append(entry);
  }
}
