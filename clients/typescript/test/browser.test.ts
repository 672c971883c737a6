// The page of the example in Chromium.

import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { extname } from "node:path";
import { test } from "node:test";
import { type Browser, chromium } from "playwright-core";
import { startServer } from "./world.js";

const PACKAGE = new URL("../../", import.meta.url);
const CONTENT_TYPES: Record<string, string> = { ".html": "text/html", ".js": "text/javascript" };
const candidates = [
  process.env.CHROMIUM,
  "/usr/bin/chromium",
  "/usr/bin/chromium-browser",
  "/usr/bin/google-chrome",
];
const executablePath = candidates.find((path) => path && existsSync(path));
const skip = executablePath ? false : "Chromium is not installed";

/** Serves the page of the example and the files of the package. */
async function servePage() {
  const server = createServer(async (request, response) => {
    const { pathname } = new URL(request.url ?? "/", "http://page");
    const path = pathname.startsWith("/palimpsest/")
      ? pathname.replace("/palimpsest/", "dist/")
      : `examples/browser${pathname === "/" ? "/index.html" : pathname}`;
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

async function open(browser: Browser, origin: string, server: string) {
  const page = await browser.newPage();
  await page.goto(`${origin}/?server=${encodeURIComponent(server)}`);
  await page.click("button");
  const state = page.locator("#state");
  await state.filter({ hasText: /./ }).waitFor();
  return { page, state };
}

test("a page of an allowed origin syncs and watches, and another page is refused", {
  skip,
}, async (context) => {
  const page = await servePage();
  const allowing = await startServer(`[http]\nallowed_origins = "${page.origin}"\n`);
  const refusing = await startServer();
  const browser = await chromium.launch({ executablePath: executablePath ?? "", args: ["--no-sandbox"] });
  context.after(() => Promise.all([page.close(), allowing.stop(), refusing.stop()]));
  try {
    const allowed = await open(browser, page.origin, allowing.url);
    assert.match((await allowed.state.textContent()) ?? "", /^1 messages, \d+ tokens$/);
    const events = allowed.page.locator("#events li");
    await events.filter({ hasText: "view_served" }).first().waitFor();
    const shown = await events.count();
    // A second message arrives on the open stream.
    await allowed.page.click("button");
    await events.nth(shown).waitFor();
    const refused = await open(browser, page.origin, refusing.url);
    assert.match((await refused.state.textContent()) ?? "", /PalimpsestError: Cannot reach the server/);
  } finally {
    await browser.close();
  }
});
