// The statements of the pages of TypeScript, Go and Java: lines that exist because of Palimpsest, versions, the commands of
// TypeScript, and its methods compared with those of Python.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { Palimpsest } from "palimpsest";

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

const manifest = JSON.parse(read("clients/typescript/package.json"));
const { name, scripts, peerDependencies, devDependencies } = manifest;
const runTests = read("clients/typescript/run-tests");
const has = (path: string): boolean => existsSync(new URL(path, REPOSITORY));

test("the package names its place in the repository, from which npm resolves the links of the README", () => {
  const [, url = ""] = /<url>(.*)<\/url>/.exec(read("clients/java/pom.xml")) ?? [];
  const { type, url: git, directory } = manifest.repository;
  assert.deepEqual([type, git], ["git", `git+${url}.git`]);
  assert.equal(JSON.parse(read(`${directory}/package.json`)).name, name);
  assert.equal(manifest.homepage, `${url}/tree/main/${directory}#readme`);
  assert.equal(manifest.bugs, `${url}/issues`);
});

/** Returns true if the tests run a package in a version that its peer range and `wanted`, the start of it, permit. */
function isTested(name: string, wanted = ""): boolean {
  const tested: string = devDependencies[name] ?? "";
  const range: string = peerDependencies[name] ?? ">=0";
  const isNewer = tested.localeCompare(range.slice(2), undefined, { numeric: true }) >= 0;
  return range.startsWith(">=") && isNewer && `${tested}.`.startsWith(wanted && `${wanted}.`);
}

/** The commands of the pages, by their beginning, and their checks. */
const COMMANDS: [RegExp, (rest: string) => boolean][] = [
  [/^git clone /, (rest) => read("clients/java/pom.xml").includes(`<url>${rest.split(" ")[0]}</url>`)],
  [/^cd \.\.\/palimpsest\//, (folder) => has(`${folder}/package.json`)],
  [/^npm run /, (script) => script in scripts && runTests.includes(`npm run ${script}`)],
  [/^npm (?=(ci|pack)$)/, (command) => runTests.includes(`npm ${command}`)],
  [/^npm install /, (packages) => packages.split(" ").every(isInstallable)],
  [/^make /, (target) => new RegExp(`^${target}:`, "m").test(read("Makefile"))],
  [
    /^export (?=\w+="\$PWD\/target\/release\/[\w-]+"$)/,
    (rest) => runTests.includes(`\${${rest.split("=")[0]}:?`),
  ],
  [/^(ROUNDS=\d+ )?node (?=target\/packages\/typescript\/js\/scripts\/compare-)/, has],
  [/^(?=(scripts|clients)\/[\w/-]+$)/, has],
];

function isInstallable(word: string): boolean {
  if (word === `../palimpsest/clients/typescript/${name}-*.tgz`) return true;
  const [, installed = "", wanted] = /^(@?[^@]+)(?:@(.+))?$/.exec(word) ?? [];
  return isTested(installed, wanted);
}

for (const page of [
  "clients/typescript/README.md",
  "docs/frameworks/ai-sdk.md",
  "docs/frameworks/mastra.md",
]) {
  test(`${page}: the tests run each command, and each version is that of the tests`, () => {
    const text = read(page);
    const blocks = Array.from(text.matchAll(/^ *```(.*)\n([\s\S]*?)^ *```$/gm));
    for (const [block, language = ""] of blocks) assert.ok(["ts", "text", "sh"].includes(language), block);
    const shell = blocks.flatMap(([, language, block = ""]) => (language === "sh" ? block.split("\n") : []));
    const inText = Array.from(text.matchAll(/`(npm [^`\n]+)`/g), ([, command = ""]) => command);
    // A line in parentheses has several commands.
    const commands = [...shell, ...inText].flatMap((line) =>
      line
        .trim()
        .replace(/^\((.*)\)$/, "$1")
        .split(" && "),
    );
    assert.ok(commands.some((command) => command.startsWith("npm install ")));
    for (const command of commands.filter(Boolean)) {
      const check = COMMANDS.find(([beginning]) => beginning.test(command));
      assert.ok(check?.[1](command.replace(check[0], "")), command);
    }
    for (const [stated, name = "", version] of text.matchAll(/`(@?[\w/-]+)` (\d+(?:\.\d+)+)/g)) {
      assert.ok(isTested(name, version), stated);
    }
  });
}

test("the README lists the methods that only one of the packages for TypeScript and Python has", () => {
  const methodsOf = (file: string) =>
    Array.from(
      read(`clients/python/src/palimpsest/${file}.py`).matchAll(/^ {4}def ([a-z]\w*)\(/gm),
      ([, name = ""]) => name.replaceAll(/_(\w)/g, (_, letter: string) => letter.toUpperCase()),
    );
  const python = new Set(["_base", "session", "client"].flatMap(methodsOf));
  const client = new Palimpsest();
  const objects = [client, client.session("demo", "methods")];
  const typescript = new Set(
    objects.flatMap((object) => [
      ...Object.keys(object),
      ...Object.getOwnPropertyNames(Object.getPrototypeOf(object)).filter((name) => name !== "constructor"),
    ]),
  );
  assert.ok(python.has("rewind") && typescript.has("rewind"));
  const rows = read("clients/typescript/README.md").matchAll(/^\| (Python|TypeScript) \| `(\w+)` \|/gm);
  assert.deepEqual(
    Array.from(rows, ([, language, method]) => `${language}: ${method}`).sort(),
    [
      ...[...python].filter((name) => !typescript.has(name)).map((name) => `Python: ${name}`),
      ...[...typescript].filter((name) => !python.has(name)).map((name) => `TypeScript: ${name}`),
    ].sort(),
  );
});
