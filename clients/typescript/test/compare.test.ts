// The comparisons of the documentation, with a short task.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

for (const framework of ["ai-sdk", "mastra"]) {
  test(`compare-${framework}: with a session, all rounds finish and stay readable`, async () => {
    const program = fileURLToPath(new URL(`../scripts/compare-${framework}.js`, import.meta.url));
    const env = { ...process.env, ROUNDS: "30", ONLY: "session, 100,000" };
    const { stdout, stderr } = await promisify(execFile)(process.execPath, [program], { env });
    assert.equal(stderr, "");
    const rows = stdout.trim().split("\n").slice(2);
    assert.equal(rows.length, 2);
    for (const row of rows) assert.match(row, /session, 100,000 \| 30 \| 0 \|.*\| 30 \|$/);
  });
}
