// The programs of the README and of the pages of frameworks. The `ts` blocks of a section are one program, and its `text`
// blocks are the output.

import assert from "node:assert/strict";
import { execFile, execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { startProvider, startServer } from "./world.js";

const PACKAGE = fileURLToPath(new URL("../../", import.meta.url));
// The compiler finds the packages from a folder in this one.
const FOLDER = join(PACKAGE, "js", "readme");

const server = await startServer();
const provider = await startProvider();
after(() => Promise.all([server.stop(), provider.stop()]));

/** Returns the blocks of a language in a section. */
function blocksOf(section: string, language: string): string[] {
  const blocks = section.matchAll(new RegExp(`^\`\`\`${language}\n([\\s\\S]*?)^\`\`\``, "gm"));
  return Array.from(blocks, (block) => block[1] ?? "");
}

/** Returns the sections of a page that have a program. */
function sectionsOf(page: string) {
  const sections = readFileSync(join(PACKAGE, page), "utf8").split(/^## /m);
  return sections
    .map((section) => ({
      title: `${page}: ${section.slice(0, section.indexOf("\n"))}`,
      program: blocksOf(section, "ts").join("\n"),
      output: blocksOf(section, "text").join(""),
    }))
    .filter((section) => section.program);
}

// The build copies the pages from the documentation of the repository.
const sections = ["README.md", "docs/ai-sdk.md", "docs/mastra.md"].map(sectionsOf);
assert.deepEqual(
  sections.map((ofPage) => ofPage.length),
  [7, 3, 2],
);

test("each program of the pages compiles, runs and prints its output", async (context) => {
  rmSync(FOLDER, { recursive: true, force: true });
  mkdirSync(FOLDER, { recursive: true });
  const files = sections.flat().map((section, index) => {
    writeFileSync(join(FOLDER, `program${index}.ts`), section.program);
    return { ...section, file: join(FOLDER, `program${index}.js`) };
  });
  const options = {
    extends: "../../tsconfig.json",
    compilerOptions: { noEmit: false, noUnusedLocals: false },
    include: ["*.ts"],
  };
  writeFileSync(join(FOLDER, "tsconfig.json"), JSON.stringify(options));
  execFileSync(process.execPath, [join(PACKAGE, "node_modules/typescript/bin/tsc"), "-p", FOLDER], {
    stdio: "inherit",
  });
  const env = {
    ...process.env,
    PALIMPSEST_URL: server.url,
    OPENAI_API_KEY: "key",
    OPENAI_BASE_URL: `${provider.url}/v1`,
    ANTHROPIC_API_KEY: "key",
    ANTHROPIC_BASE_URL: provider.url,
  };
  for (const { title, file, output } of files) {
    await context.test(title, async () => {
      if (output.startsWith("Its")) {
        await provider.script("gpt-5", [{ calls: [{ name: "read_log" }] }, { text: output.trim() }]);
      }
      const { stdout } = await promisify(execFile)(process.execPath, [file], { env });
      if (output) assert.equal(stdout, output);
    });
  }
});
