// The numbers in the pages of all languages but Python: lines that exist because of Palimpsest, and versions of Java.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const PACKAGE = new URL("../../", import.meta.url);
// The package is built and tested in `target/packages/typescript` of the repository.
const REPOSITORY = new URL("../../../", PACKAGE);
const NUMBERS = ["Zero", "One", "Two", "Three", "Four", "Five", "Six", "Seven"];
const read = (path: string): string => readFileSync(new URL(path, REPOSITORY), "utf8");

/** Returns the number of marked lines in the first program of a page. */
function marked(page: string): number {
  const program = /^```(?:ts|go|java)\n([\s\S]*?)^```/m.exec(page)?.[1] ?? "";
  const [lines, others] = [program.split("\n"), [] as string[]];
  for (const line of lines) if (!line.endsWith("// Palimpsest")) others.push(line);
  // No other line names anything of Palimpsest.
  assert.deepEqual(
    others.filter((line) =>
      /[Pp]alimpsest|[Ss]ession|eino\.\w|context[MTP]|context\)|context\.(send|answer)/.test(line),
    ),
    [],
  );
  return lines.length - others.length;
}

const frameworks = ["ai-sdk", "mastra", "eino", "spring-ai", "langchain4j"];
const pages = [
  ...frameworks.map((name) => `docs/frameworks/${name}.md`),
  ...["typescript", "go", "java"].map((language) => `clients/${language}/README.md`),
];

for (const path of pages) {
  test(`the number of lines in ${path}`, () => {
    const page = read(path);
    const [, stated] = /^(\w+) lines exist because of Palimpsest/m.exec(page) ?? [];
    assert.equal(stated, NUMBERS[marked(page)]);
  });
}

test("the numbers of lines in the list of frameworks", () => {
  const rows = read("docs/frameworks/README.md").split("\n");
  for (const name of frameworks) {
    const row = rows.find((line) => line.includes(`](${name}.md) |`)) ?? "";
    assert.equal(row.split("|").at(-3)?.trim(), String(marked(read(`docs/frameworks/${name}.md`))), row);
  }
});

test("the examples have as many lines as the pages", () => {
  const counted = execFileSync(fileURLToPath(new URL("scripts/count-glue", PACKAGE)), { encoding: "utf8" });
  const ofPages = { agent: "clients/typescript/README.md", "ai-sdk": pages[0], mastra: pages[1] };
  for (const [example, page] of Object.entries(ofPages)) {
    assert.match(counted, new RegExp(`^${example}.ts: ${marked(read(page as string))} lines`, "m"));
  }
});

test("the versions in the pages of Java are those of the tests", () => {
  const pom = read("clients/java/pom.xml");
  for (const path of pages.filter((path) => /java|spring|langchain4j/.test(path))) {
    const versions = Array.from(read(path).matchAll(/<version>(.*)<\/version>/g), ([, version]) => version);
    assert.ok(versions.length > 2, path);
    for (const version of versions) assert.ok(pom.includes(`>${version}<`), `${path}: ${version}`);
  }
});
