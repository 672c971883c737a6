// The patterns of a search.

/** Flags of JavaScript with the same meaning in RE2, and those that do not change the found places. */
const FLAGS = "imsdgu";

/** Returns the fields of a pattern. Throws for a flag that RE2 does not have. */
export function patternOf(pattern: string | RegExp): Record<string, unknown> {
  if (typeof pattern === "string") return { literal: pattern };
  const { source, flags, ignoreCase, multiline, dotAll } = pattern;
  const unknown = [...flags].find((flag) => !FLAGS.includes(flag));
  if (unknown) {
    throw new TypeError(`The flag \`${unknown}\` of ${pattern} has no counterpart in RE2. Remove it.`);
  }
  const inline = `${multiline ? "(?m)" : ""}${dotAll ? "(?s)" : ""}`;
  return { regex: inline + source, ignore_case: ignoreCase };
}
