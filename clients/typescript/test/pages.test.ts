// The numbers in the pages of TypeScript, Go and Java: lines that exist because of Palimpsest, and versions.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

// The package is built and tested in `target/packages/typescript` of the repository.
const REPOSITORY = new URL("../../../../../", import.meta.url);
const NUMBERS = ["Zero", "One", "Two", "Three", "Four", "Five", "Six", "Seven"];
const read = (path: string): string => readFileSync(new URL(path, REPOSITORY), "utf8");

for (const [language, pages] of Object.entries({ TypeScript: 2, Go: 1, Java: 2 })) {
  test(`the pages of frameworks for ${language} state the counted lines`, () => {
    const script = fileURLToPath(new URL("scripts/check-glue", REPOSITORY));
    const checked = execFileSync(script, [language], { encoding: "utf8" });
    assert.equal(checked.split("counted").length - 1, pages, checked);
  });
}

for (const language of ["typescript", "go", "java"]) {
  test(`the README for ${language} states the lines with a comment in its first program`, () => {
    const page = read(`clients/${language}/README.md`);
    const program = /^```(?:ts|go|java)\n([\s\S]*?)^```/m.exec(page)?.[1] ?? "";
    const isMarked = (line: string) => line.endsWith("// Palimpsest");
    const lines = program.split("\n");
    const [, stated] = /^(\w+) lines exist because of Palimpsest/m.exec(page) ?? [];
    assert.equal(stated, NUMBERS[lines.filter(isMarked).length]);
    // No other line names anything of Palimpsest.
    const uses = lines.filter((line) => /palimpsest|session|context\.(send|answer)/i.test(line));
    assert.deepEqual(uses.filter(isMarked), uses);
  });
}

test("the versions in the pages of Java are those of the tests", () => {
  const pom = read("clients/java/pom.xml");
  for (const path of ["clients/java/README", "docs/frameworks/spring-ai", "docs/frameworks/langchain4j"]) {
    const versions = Array.from(read(`${path}.md`).matchAll(/<version>(.*)<\/version>/g), ([, it]) => it);
    assert.ok(versions.length > 2, path);
    for (const version of versions) assert.ok(pom.includes(`>${version}<`), `${path}: ${version}`);
  }
});
