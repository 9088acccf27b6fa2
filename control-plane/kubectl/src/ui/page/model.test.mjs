// Tests of what is drawn: node --test model.test.mjs
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";

// The browser is told by the server that the file is a module, and node by the address.
const source = await readFile(new URL("model.js", import.meta.url), "utf8");
const model = await import(`data:text/javascript,${encodeURIComponent(source)}`);

const NOW = Date.parse("2026-01-01T00:10:00Z");
const cluster = (name, more = {}) => ({ name, ready: "True", reason: "ClusterReady", concern: null, paused: false, taints: [], workloads: 1, region: "eu", ...more });
const COUNTS = { notWell: 0, moving: 0, waiting: 0, stranded: 0, unheard: 0, unplaced: 0, withoutDependencies: 0 };
const status = (more = {}) => ({ summary: { severity: "alarm", sentence: "m1 silent" }, counts: COUNTS, leader: { acts: true }, failover: true, pace: { band: "primary" }, notWell: [], waiting: [], oldCopies: [], flows: [], read: NOW, ...more });
const failover = (more = {}, times = {}) => ({
  metadata: { name: "m1-1" }, spec: { cluster: "m1", startTime: "2026-01-01T00:00:00Z" },
  status: { state: "Active", cause: { type: "ClusterUnreachable" }, times, workloads: { affected: 14, moved: 12, healthy: 12 }, targets: [{ cluster: "m2", workloads: 12 }], ...more },
});

test("the tab says how bad it is and how many need attention", () => {
  for (const [severity, counts, expected] of [
    ["well", COUNTS, "✔ all well – Muster"],
    ["alarm", { ...COUNTS, notWell: 1, stranded: 1, waiting: 1, unplaced: 2 }, "✖ 1 cluster, 2 workloads – Muster"],
    ["attention", { ...COUNTS, notWell: 3 }, "! 3 clusters – Muster"],
    ["notice", COUNTS, "▼ by order – Muster"],
    ["unknown", COUNTS, "? not known – Muster"],
  ]) {
    const found = model.headline(status({ summary: { severity, sentence: "s" }, counts }));
    assert.equal(found.title, expected);
    assert.equal(found.icon, `${severity}.svg`);
  }
  assert.equal(model.headline(undefined).severity, "unknown");
});

test("each state of a cluster has a form of its own, and what is not known is not well", () => {
  for (const [it, order, expected] of [
    [cluster("a"), undefined, "ready"],
    [cluster("a", { ready: "Unknown" }), undefined, "silent"],
    [cluster("a", { ready: "Unknown", reason: "NeverReported" }), undefined, "new"],
    [cluster("a", { ready: "False" }), {}, "notReady"],
    [cluster("a", { concern: "X=False" }), undefined, "attention"],
    [cluster("a", { taints: ["x:NoSchedule"] }), undefined, "attention"],
    [cluster("a", { taints: ["drain:NoExecute"] }), {}, "ordered"],
    [cluster("a", { paused: true }), undefined, "ordered"],
    [cluster("a", { paused: true, concern: "X=False" }), undefined, "attention"],
  ]) assert.equal(model.stateOf(it, order), expected);
});

test("groups with the worst clusters come first, and a sum with an unknown part is not known", () => {
  const all = [cluster("a"), cluster("b", { ready: "Unknown", region: "us", workloads: null }), cluster("c", { region: "us" })];
  const [us, eu] = model.groups(all, "region", new Map());
  assert.deepEqual([us.name, us.clusters.map((it) => it.name), us.counts, us.workloads], ["us", ["b", "c"], { silent: 1, ready: 1 }, null]);
  assert.equal(eu.workloads, 1);
  const byLabel = model.groups([cluster("a", { labels: { tier: "1" } }), cluster("b")], "label tier", new Map());
  assert.deepEqual(byLabel.map((it) => it.name), ["", "1"]);
});

const overlap = (a, b) => a.x < b.x + b.w - 0.01 && b.x < a.x + a.w - 0.01 && a.y < b.y + b.h - 0.01 && b.y < a.y + a.h - 0.01;
test("no tile overlaps another one or leaves the page, on a wide and a narrow page", () => {
  for (const count of [1, 5, 60, 500]) {
    const all = Array.from({ length: count }, (_, at) => cluster(`m${at}`, { region: `r${at % 7}`, workloads: at * at }));
    const groups = model.groups(all, "region", new Map());
    for (const width of [360, 1400]) {
      const { boxes, named } = model.layout(groups, { width, open: new Set(["r1", "r2"]) });
      assert.equal(named, count <= 60);
      const tiles = boxes.flatMap((it) => it.tiles);
      assert.equal(tiles.length, named ? count : groups.filter((it) => ["r1", "r2"].includes(it.name)).flatMap((it) => it.clusters).length);
      for (const part of [boxes, tiles]) {
        part.forEach((a, at) => {
          assert(a.x >= 0 && a.x + a.w <= width + 0.01, `${count} ${width}: ${a.x} ${a.w}`);
          for (const b of part.slice(at + 1)) assert(!overlap(a, b), `${count} ${width}`);
        });
      }
    }
  }
});

test("arrows lead from cluster to cluster, or from group to group where tiles are closed", () => {
  const flows = model.flows(status({ flows: [{ from: "m1", to: "m2", workloads: 3 }] }), [failover(), failover({ state: "Ended" })]);
  assert.deepEqual(flows, [{ from: "m1", to: "m2", moving: 3, moved: 12 }]);
  const draw = (count) => {
    const all = Array.from({ length: count }, (_, at) => cluster(`m${at + 1}`, { region: `r${at % 2}` }));
    return model.arrows(flows, model.layout(model.groups(all, "region", new Map()), { width: 1400, open: new Set() }));
  };
  for (const count of [2, 100]) {
    const [arrow, ...more] = draw(count);
    assert.deepEqual([arrow.label, arrow.kind, more], ["3", "moving", []]);
    assert(!/NaN/.test(arrow.path + arrow.head));
  }
  const inOne = model.groups([cluster("m1"), ...Array.from({ length: 99 }, (_, at) => cluster(`m${at + 2}`))], "region", new Map());
  assert.deepEqual(model.arrows(flows, model.layout(inOne, { width: 1400, open: new Set() })), []);
});

test("a strip shows each step, what goes on, and what comes next with its time", () => {
  const times = { tainted: "2026-01-01T00:00:30Z", firstMove: "2026-01-01T00:01:00Z", lastMove: "2026-01-01T00:02:00Z", healthy: "2026-01-01T00:03:00Z" };
  const strip = model.strip(failover({}, times), status({ oldCopies: [{ cluster: "m1", copies: 12, state: "silent" }] }), NOW);
  assert.deepEqual(strip.lanes.map((it) => it.words), ["silent for 10 min 00 s", "tainted after 30 s", "12 of 14 moved", "12 of 12 healthy elsewhere", "12 old copies not confirmed gone"]);
  assert.deepEqual(strip.lanes.map((it) => it.parts.map(({ from, to, open }) => [from, to, open])), [
    [[0, 600, true]], [[30, 600, true]], [[60, 120, false]], [[60, 180, false]], [[60, 600, true]],
  ]);
  assert.equal(strip.next.words, "the old copies go when m1 is ready again");
  const twice = model.strip(failover({ returns: [{ recovered: "2026-01-01T00:01:00Z", returned: "2026-01-01T00:02:00Z" }] }), status(), NOW);
  assert.deepEqual(twice.lanes[0].parts.map(({ from, to, open }) => [from, to, open]), [[0, 60, false], [120, 600, true]]);
});

test("what comes next is told, and what is not known is told to be so", () => {
  const notWell = (more) => [{ name: "m1", workloads: {}, ...more }];
  const waits = (reason, atMostSeconds) => ({ message: "m1 has x: it stays", reason, atMostSeconds });
  for (const [it, of, words, at] of [
    [failover({ state: "Ended" }), status(), "ended"],
    [failover(), undefined, "not known: the fleet cannot be read"],
    [failover(), status({ isBlind: true }), "not known: the fleet cannot be read"],
    [failover(), status({ leader: { acts: false } }), "nothing, because no control plane leads"],
    [failover(), status({ failover: false }), "nothing, because failover is off"],
    [failover(), status({ notWell: notWell({ nextTaintSeconds: 20 }) }), "it is tainted", 20],
    [failover(), status({ notWell: notWell({ firstLeavesSeconds: 26 }) }), "the first workload may leave", 26],
    [failover(), status({ waiting: [waits("StoppedByThreshold")], pace: { band: "stopped" } }), "nothing until fewer clusters have failed"],
    [failover(), status({ waiting: [waits("WaitingForToleration", 3)], notWell: notWell({ firstLeavesSeconds: 3 }), pace: { band: "stopped" } }), "nothing until fewer clusters have failed"],
    [failover(), status({ waiting: [waits("Paused")] }), "nothing until the pause ends"],
    [failover(), status({ waiting: [waits("Fencing")], clusterList: [{ name: "m1", paused: true }] }), "nothing until the pause ends"],
    [failover(), status({ waiting: [waits("Fencing"), waits("Unfenced"), waits("Fencing")] }), "3 workloads wait (Fencing, Unfenced)"],
    [failover({}, { tainted: "2026-01-01T00:00:30Z" }), status(), "m1 is ready again"],
    [failover({ cause: { type: "Drain" } }, { tainted: "2026-01-01T00:00:30Z" }), status(), "nothing until somebody runs kubectl muster undrain m1"],
    [failover(), status({ waiting: [waits("WaitingForRate", 3)] }), "the last has left at the latest", 3],
    [failover({ workloads: { affected: 2, moved: 2, healthy: 1 } }), status(), "1 become healthy elsewhere, at a time that is not known"],
    [failover({ state: "Settling" }), status({ oldCopies: [{ cluster: "m1", copies: 1, state: null }] }), "the old copies are being removed"],
  ]) {
    const found = model.next(it, of);
    assert.equal(found.words, words);
    assert.equal(found.at, at === undefined ? undefined : NOW + 1000 * at);
  }
});

test("room is told in percent, after a loss too, and what is not known has no number", () => {
  const amounts = (allocatable, requested) => ({ allocatable, requested });
  const top = [
    { name: "m1", ready: "True", resources: { cpu: amounts("12", "3"), memory: amounts("48Gi", "24Gi"), pods: amounts("100", "10") } },
    { name: "m2", ready: "Unknown", resources: {} },
  ];
  const forecast = { lost: ["m2"], drained: [], room: { m1: { cpu: { after: "1500m" }, memory: { after: "24Gi" } } } };
  const { rows } = model.room(top, forecast);
  assert.deepEqual(rows[0].bars, [{ resource: "cpu", now: 25, after: 88 }, { resource: "memory", now: 50, after: 50 }, { resource: "pods", now: 10, after: undefined }]);
  assert.deepEqual([rows[1].isOld, rows[1].isGone, rows[1].bars[0].now], [true, true, undefined]);
  for (const [text, expected] of [["250m", 0.25], ["1e3", 1000], ["1Ki", 1024], ["x", undefined], [null, undefined]]) assert.equal(model.quantity(text), expected);
});

test("an address names the same part again, and nothing else is one", () => {
  const hash = model.workloadAddress("ClusterRole system:node");
  assert.equal(hash, "#workload/-/ClusterRole/system:node");
  assert.deepEqual(model.route(hash), ["workload", "-", "ClusterRole", "system:node"]);
  assert.equal(model.workloadAddress("Deployment default/web"), "#workload/default/Deployment/web");
  for (const wrong of ["", "#fleet", "#cluster", "#cluster/", "#cluster/a/b", "#cluster/%", "#workload/a/b"]) assert.equal(model.route(wrong), undefined, wrong);
});
