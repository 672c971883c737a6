// The pages of the example in Chromium.

import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { extname } from "node:path";
import { after, test } from "node:test";
import { chromium } from "playwright-core";
import { startServer } from "./world.js";

const PACKAGE = new URL("../../", import.meta.url);
const CONTENT_TYPES: Record<string, string> = { ".html": "text/html", ".js": "text/javascript" };
const candidates = [
  process.env.CHROMIUM,
  "/usr/bin/chromium",
  "/usr/bin/chromium-browser",
  "/usr/bin/google-chrome",
];
const executablePath = candidates.find((path) => path && existsSync(path)) ?? "";
const skip = executablePath ? false : "Chromium is not installed";

/** Serves the pages of the example and the files of the package. */
async function servePage() {
  const server = createServer(async (request, response) => {
    const { pathname } = new URL(request.url ?? "/", "http://page");
    const path = pathname.startsWith("/palimpsest/")
      ? pathname.replace("/palimpsest/", "dist/")
      : `examples/browser${pathname}`;
    const file = await readFile(new URL(path, PACKAGE)).catch(() => undefined);
    response
      .writeHead(file ? 200 : 404, { "content-type": CONTENT_TYPES[extname(path)] ?? "text/plain" })
      .end(file);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    origin: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    close: () => server.close(),
  };
}

const page = await servePage();
const allowing = await startServer(`[http]\nallowed_origins = "${page.origin}"\n`);
const refusing = await startServer();
const browser = skip ? undefined : await chromium.launch({ executablePath, args: ["--no-sandbox"] });
after(() => Promise.all([browser?.close(), page.close(), allowing.stop(), refusing.stop()]));

/** Opens a page of the example and sends its form. Returns the shown state and events. */
async function open(name: string, server: string, protocol?: string) {
  if (!browser) throw new Error("Chromium is not installed.");
  const parameters = new URLSearchParams({ server, session: `${name}-${protocol ?? "http"}` });
  const opened = await browser.newPage();
  await opened.goto(`${page.origin}/${name}?${parameters}`);
  if (protocol) await opened.selectOption("#protocol", protocol);
  const send = () => opened.click("button");
  await send();
  const shown = opened.locator("#state").filter({ hasText: /./ });
  const state = async () => (await shown.textContent()) ?? "";
  return { send, state, events: opened.locator("#events li") };
}

test("a page of an allowed origin syncs and watches, and another page is refused", { skip }, async () => {
  const { send, state, events } = await open("index.html", allowing.url);
  assert.match(await state(), /^1 messages, \d+ tokens$/);
  await events.filter({ hasText: "view_served" }).first().waitFor();
  const count = await events.count();
  // A second message arrives on the open stream.
  await send();
  await events.nth(count).waitFor();
  const refused = await open("index.html", refusing.url);
  assert.match(await refused.state(), /PalimpsestError: Cannot reach the server/);
});

for (const protocol of ["Connect", "gRPC-Web"]) {
  test(`a page calls and watches by ${protocol}, and another page is refused`, { skip }, async () => {
    const { send, state, events } = await open("connect.html", allowing.url, protocol);
    assert.equal(await state(), "synced 1, prepared 1, streamed 1, missing NotFound");
    await events.filter({ hasText: "viewServed" }).first().waitFor();
    const count = await events.count();
    await send();
    await events.nth(count).waitFor();
    const refused = await open("connect.html", refusing.url, protocol);
    assert.match(await refused.state(), /^ConnectError: .*Failed to fetch/);
  });
}
