// Tests of what is drawn: node --test model.test.mjs
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";

// The browser learns from the server that the file is a module, and node by the address.
const source = await readFile(new URL("model.js", import.meta.url), "utf8");
const model = await import(`data:text/javascript,${encodeURIComponent(source)}`);

const NOW = Date.parse("2026-01-01T00:10:00Z");
const cluster = (name, more = {}) => ({ name, state: "ready", ready: "True", reason: "ClusterReady", concern: null, paused: false, taints: [], workloads: 1, region: "eu", ...more });
const COUNTS = { notWell: 0, moving: 0, waiting: 0, stranded: 0, unheard: 0, unplaced: 0, applications: 0, stuck: 0, heldBack: 0, withoutDependencies: 0, unpublished: 0 };
const NOBODY = { failing: { count: 0 }, without: { count: 0 } };
const status = (more = {}) => ({ summary: { severity: "alarm", sentence: "m1 silent", lost: "no", service: "nobody", next: "the sum", advice: { words: "nothing" } }, counts: COUNTS, service: NOBODY, leader: { acts: true }, failover: true, pace: { band: "primary" }, notWell: [], ordered: [], waiting: [], oldCopies: [], flows: [], read: NOW, ...more });
const failover = (more = {}, times = {}) => ({
  metadata: { name: "m1-1" }, spec: { cluster: "m1", startTime: "2026-01-01T00:00:00Z" },
  status: { state: "Active", cause: { type: "ClusterUnreachable" }, times, workloads: { affected: 14, moved: 12, healthy: 12 }, targets: [{ cluster: "m2", workloads: 12 }], ...more },
});

test("the tab says how bad it is and how many need attention", () => {
  for (const [severity, counts, expected, service = NOBODY] of [
    ["well", COUNTS, "✔ all well – Muster"],
    ["alarm", { ...COUNTS, notWell: 1, stranded: 1, waiting: 1, unplaced: 2 }, "✖ 1 cluster, 2 workloads – Muster"],
    ["attention", { ...COUNTS, notWell: 3 }, "! 3 clusters – Muster"],
    ["attention", { ...COUNTS, heldBack: 2 }, "! 2 workloads – Muster"],
    ["attention", { ...COUNTS, unpublished: 1 }, "! 1 workload – Muster"],
    // Two of the applications that fail are tolerated, and run elsewhere.
    ["attention", { ...COUNTS, applications: 3, stuck: 1 }, "! 1 workload – Muster"],
    ["attention", { ...COUNTS, applications: 1 }, "! 1 workload – Muster", { ...NOBODY, failing: { count: 1 } }],
    ["alarm", COUNTS, "✖ 2 workloads – Muster", { ...NOBODY, without: { count: 2 } }],
    ["notice", COUNTS, "▼ by order – Muster"],
    ["unknown", COUNTS, "? not known – Muster"],
  ]) {
    const found = model.headline(status({ summary: { ...status().summary, severity }, counts, service }));
    assert.equal(found.title, expected);
    assert.equal(found.icon, `${severity}.svg`);
  }
});

test("who is without service, what comes next, what to do and what may run twice stand in this order", () => {
  const summary = { ...status().summary, lost: "perhaps", service: "perhaps 1", twice: "none", next: "in 9 s: x", advice: { words: "look", command: "kubectl x" } };
  const matters = (more) => model.headline(status({ summary: { ...summary, ...more } })).matters;
  assert.deepEqual(matters().map((it) => [it.name, it.text, it.command]), [["Without service", "? perhaps 1", undefined], ["Next", "in 9 s: x", undefined], ["To do", "look", "kubectl x"], ["Two copies", "none", undefined]]);
  assert.deepEqual(["yes", "perhaps", "no", "unknown"].map((lost) => matters({ lost })[0].kind), ["bad", "warn", "good", "bad"]);
  const [,,, twice] = matters({ twice: "1 old copy", stop: { words: "Stop it", command: "kubectl y" } });
  assert.deepEqual([twice.text, twice.command], ["1 old copy. Stop it", "kubectl y"]);
});

test("what moved away from a lost cluster was interrupted, and that is shown as long as it lasts", () => {
  const took = { timeToHealthy: { medianSeconds: 13, counts: [{ seconds: 13, workloads: 11 }, { seconds: 16, workloads: 1 }] } };
  const returned = [{ recovered: "2026-01-01T00:02:30Z", returned: "2026-01-01T00:05:00Z" }];
  for (const [more, times, expected] of [
    [took, {}, "✔ nobody; 12 workloads that moved were interrupted for at most 16 s"],
    [{ ...took, workloads: { healthy: 1 } }, {}, "✔ nobody; 1 workload that moved was interrupted for at most 16 s"],
    [{ ...took, state: "Ended" }, {}, "✔ nobody"],
    [{ ...took, cause: { type: "Drain" } }, {}, "✔ nobody"],
    [{ ...took, returns: returned }, { lastMove: "2026-01-01T00:02:00Z" }, "✔ nobody"],
    [{}, {}, "✔ nobody"],
  ]) assert.equal(model.headline(status(), [failover(more, times)]).matters[0].text, expected);
  const later = failover({ ...took, timeToHealthy: { counts: [{ seconds: 40, workloads: 3 }] } });
  const none = failover({ ...took, workloads: {} });
  assert.equal(model.headline(status(), [failover(took), later]).matters[0].text, "✔ nobody; what moved was interrupted for at most 40 s");
  assert.equal(model.headline(status(), [none, later]).matters[0].text, "✔ nobody; 12 workloads that moved were interrupted for at most 40 s");
});

test("of a fleet that is away the page says why, and what was known last", () => {
  const blind = { lost: "unknown", service: "not known", next: "not known", advice: { words: "ask for a role", command: "kubectl x" }, twice: "not known" };
  const known = status({ read: "2026-01-01T00:10:00.5Z", summary: { ...status().summary, sentence: "m2 drained", service: "nobody", twice: "none" } });
  assert.deepEqual(model.away(blind, known).map((it) => it.text), [
    "? not known", "not known; this page refreshes by itself every few seconds", "ask for a role", "not known",
    "2026-01-01 00:10:00Z: m2 drained. Service: nobody. Two copies: none",
  ]);
  assert.match(model.away(undefined, undefined)[2].text, /whether the program that serves it still runs/);
});

test("what a text says is the same while only its times go on", () => {
  for (const [a, b, same] of [
    ["m1 silent for 59 s (since 00:09:01Z)", "m1 silent for 1 min 01 s (since 00:09:01Z)", true],
    ["read at 2026-01-01 00:10:00Z", "read at 2026-01-01 00:10:03Z", true],
    ["m1 silent for 59 s", "m2 silent for 59 s", false],
    ["3 move", "2 move", false],
  ]) assert.equal(model.timeless(a) === model.timeless(b), same, a);
});

test("an event is told with the time at which it comes", () => {
  for (const [seconds, expected] of [
    [undefined, "it leaves"],
    [0, "any moment now: it leaves"],
    [9, "in 9 s (00:10:09Z): it leaves"],
    [1e15, "in 11574074074 days (+275760-09-13 00:00:00Z): it leaves"],
  ]) assert.equal(model.upcoming({ words: "it leaves", seconds }, NOW), expected);
});

test("a cluster that is ready is described by the orders of people, and any other by what is wrong", () => {
  for (const [it, order, expected] of [
    [cluster("a"), undefined, "ready"],
    [cluster("a"), {}, "ordered"],
    [cluster("a", { paused: true }), undefined, "ordered"],
    [cluster("a", { state: "silent" }), {}, "silent"],
    [cluster("a", { state: "attention", paused: true }), undefined, "attention"],
  ]) assert.equal(model.stateOf(it, order), expected);
});

test("groups that lost the most come first, then those of the worst state, and where all are in sight each has its place", () => {
  const silent = (name, region, workloads) => cluster(name, { state: "silent", region, workloads });
  const all = [cluster("a"), silent("b", "us", null), cluster("c", { region: "us" }), silent("d", "zz", 9), silent("e", "am", 1), silent("f", "am", 1)];
  const few = model.groups([...all].reverse(), "region", new Map());
  assert.deepEqual(few.map((it) => [it.name, ...it.clusters.map((it) => it.name)]), [["am", "e", "f"], ["eu", "a"], ["us", "b", "c"], ["zz", "d"]]);
  const found = model.groups([...all, ...Array.from({ length: 60 }, (_, at) => cluster(`x${at}`))], "region", new Map());
  assert.deepEqual(found.map((it) => it.name), ["zz", "am", "us", "eu"]);
  assert.deepEqual([found[2].clusters.map((it) => it.name), found[2].counts], [["b", "c"], { silent: 1, ready: 1 }]);
  assert.equal(model.counted(found[2].counts), "? 1 silent, ✔ 1 ready");
  const byLabel = model.groups([cluster("a", { labels: { tier: "1" } }), cluster("b")], "label tier", new Map());
  assert.deepEqual(byLabel.map((it) => it.name), ["", "1"]);
});

test("a cluster that somebody ordered something for is called by the order", () => {
  for (const [order, expected] of [[{ order: "Drained,Cordoned", words: "drained and cordoned" }, "drained and cordoned"], [undefined, "paused"]]) {
    assert.equal(model.wordsOf("ordered", order), expected);
  }
  assert.equal(model.wordsOf("silent", undefined), "silent");
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

test("on a narrow page the box that lost the most has room for its words", () => {
  const all = Array.from({ length: 100 }, (_, at) => cluster(`m${at}`, { region: `r${at % 4}`, state: at % 4 === 2 ? "silent" : "ready" }));
  const { boxes } = model.layout(model.groups(all, "region", new Map()), { width: 360, open: new Set() });
  assert.deepEqual(boxes.map((it) => [it.group.name, it.w]), [["r2", 360], ["r0", 164], ["r1", 164], ["r3", 164]]);
});

test("arrows lead from cluster to cluster, or from group to group where tiles are closed", () => {
  const flows = model.flows(status({ counts: { ...COUNTS, moving: 3 }, flows: [{ from: "m1", to: "m2", workloads: 3 }] }), [failover(), failover({ state: "Ended" })]);
  assert.deepEqual(flows, [{ from: "m1", to: "m2", moving: 3, moved: 12, more: 0 }]);
  const draw = (count, width = 1400) => {
    const all = Array.from({ length: count }, (_, at) => cluster(`m${at + 1}`, { region: `r${at % 2}` }));
    return model.arrows(flows, model.layout(model.groups(all, "region", new Map()), { width, open: new Set() }), width);
  };
  for (const [count, line] of [[2, "→ From m1: 3 moving to m2"], [100, "→ From the clusters of r0: 3 moving to r1"]]) {
    const { drawn: [arrow, ...more], lines } = draw(count);
    assert.deepEqual([arrow.label, arrow.kind, more], ["3", "moving", []]);
    assert(!/NaN/.test(arrow.path + arrow.head));
    assert.deepEqual(lines, [line]);
  }
  assert.deepEqual(draw(2, 390), { drawn: [], lines: ["→ From m1: 3 moving to m2"] });
  // 12 moved, of which 2 are placed in two clusters.
  const twice = model.flows(status(), [failover({ targets: [{ cluster: "m2", workloads: 12 }, { cluster: "m3", workloads: 2 }] })]);
  const three = model.layout(model.groups(["m1", "m2", "m3"].map((name) => cluster(name)), "region", new Map()), { width: 1400, open: new Set() });
  const { drawn: [one, other] } = model.arrows(twice, three, 1400);
  const deepest = (it) => Math.max(...it.points.map(([, y]) => y));
  assert(deepest(other) - deepest(one) >= 6, "no two run on one line");
  assert.deepEqual(model.arrows(twice, three, 1400).lines, ["→ From m1: 12 taken over by m2, 2 by m3 (12 workloads; one in several clusters counts in each)"]);
  const inOne = model.groups([cluster("m1"), ...Array.from({ length: 99 }, (_, at) => cluster(`m${at + 2}`))], "region", new Map());
  assert.deepEqual(model.arrows(flows, model.layout(inOne, { width: 1400, open: new Set() }), 1400), { drawn: [], lines: ["→ From the clusters of eu: 3 moving to others there"] });
});

test("no arrow crosses words or a tile that is not its own, and of too many none is drawn", () => {
  const all = Array.from({ length: 40 }, (_, at) => cluster(`m${at + 1}`, { region: `region${at % 6}` }));
  const plan = model.layout(model.groups(all, "region", new Map()), { width: 1000, open: new Set() });
  const pairs = (count) => Array.from({ length: count }, (_, at) => ({ from: `m${at + 1}`, to: `m${((at * 7) % 40) + 1}`, moving: 0, moved: at + 1 }));
  const tiles = plan.boxes.flatMap((it) => it.tiles);
  let drawn = 0;
  for (let from = 0; from < 40; from += 8) {
    for (const it of model.arrows(pairs(40).slice(from, from + 8), plan, 1000).drawn) {
      drawn += 1;
      for (const tile of tiles.filter((tile) => !it.ends.includes(tile))) {
        for (const [x, y] of it.points) assert(!(x > tile.x && x < tile.x + tile.w && y > tile.y && y < tile.y + tile.h));
      }
    }
  }
  assert(drawn > 0);
  const many = model.arrows(pairs(40), plan, 1000);
  assert.deepEqual([many.drawn, many.lines.length], [[], 7]);
  assert.match(many.lines[0], /^→ From m40: 40 taken over by m34$/);
  assert.match(many.lines[6], /^→ From 32 more: \d+$/);
});

test("a strip shows each step, what goes on, and what comes next with its time", () => {
  const times = { tainted: "2026-01-01T00:00:30Z", firstMove: "2026-01-01T00:01:00Z", lastMove: "2026-01-01T00:02:00Z", healthy: "2026-01-01T00:03:00Z" };
  const of = { oldCopies: [{ cluster: "m1", copies: 12, state: "silent" }], notWell: [{ name: "m1", taints: ["x:NoExecute"], next: { words: "old copies go", seconds: 9 } }] };
  const strip = model.strip(failover({}, times), status(of), NOW);
  assert.deepEqual(strip.lanes.map((it) => it.words), ["silent for 10 min", "marked as failed after 30 s", "12 of 14 moved", "12 of 12 healthy", "12 old copies not confirmed gone"]);
  assert.deepEqual(strip.lanes.map((it) => it.parts.map(({ from, to, open }) => [from, to, open])), [
    [[0, 600, true]], [[30, 600, true]], [[60, 120, false]], [[60, 180, false]], [[60, 600, true]],
  ]);
  assert.equal(strip.next, "in 9 s (00:10:09Z): old copies go");
  const fast = model.strip(failover({ timeToHealthy: { medianSeconds: 13 } }, times), status(of), NOW);
  assert.equal(fast.lanes[3].words, "12 of 12 healthy, half in 13 s");
  const large = failover({ timeToHealthy: { medianSeconds: 1799 }, workloads: { affected: 10000, moved: 10000, healthy: 10000 } }, times);
  for (const { words } of [...model.strip(large, status(of), NOW).lanes, ...model.strip(failover({}, times), status({ moving: [{ from: "m1", to: ["m2"] }] }), NOW).lanes]) assert(words.length <= model.WORDS, words);
  // What waits still moves, and what is healthy in part is not healthy yet.
  const open = (more, of) => model.strip(failover(more, { ...times, healthy: undefined }), status(of), NOW).lanes.slice(2, 4).map((it) => it.parts[0].open);
  for (const [more, of, expected] of [
    [{}, {}, [false, false]],
    [{ workloads: { affected: 14, moved: 12, healthy: 11 } }, {}, [false, true]],
    [{}, { waiting: [{ clusters: ["m1"] }] }, [true, false]],
    [{}, { waiting: [{ clusters: ["m2"] }] }, [false, false]],
    [{}, { notWell: [{ name: "m1", workloads: { waiting: { WaitingForRate: 2 } }, next: {} }] }, [true, false]],
  ]) assert.deepEqual(open(more, of), expected);
  const back = { returns: [{ recovered: "2026-01-01T00:02:30Z", returned: "2026-01-01T00:05:00Z" }] };
  const twice = model.strip(failover(back, times), status(of), NOW);
  const parts = (at) => twice.lanes[at].parts.map(({ from, to, open }) => [from, to, open]);
  assert.deepEqual([parts(0), parts(1)], [[[0, 150, false], [300, 600, true]], [[30, 150, false], [300, 600, true]]]);
  assert.deepEqual([twice.lanes[0].words, twice.lanes[2].words], ["silent 2 times, now for 5 min", "12 of 14 moved, before it returned"]);
  assert.deepEqual([strip.title, strip.when, twice.when], ["m1: silent", "last heard 00:00:00Z", "first 00:00:00Z, again since 00:05:00Z"]);
  // The second mark is no older than what waits because of it, and the last word no older than the silence.
  const late = { ...of, waiting: [{ clusters: ["m1"], since: "2026-01-01T00:05:10Z" }], clusterList: [cluster("m1", { state: "silent", begun: "2026-01-01T00:05:00.8Z" })] };
  const again = model.strip(failover(back, times), status(late), NOW);
  assert.deepEqual([again.lanes[1].parts[1].from, again.lanes[0].words], [310, "silent 2 times, now for 4 min 59 s"]);
  // Each taint by which workloads leave is a mark.
  const marks = (effect) => model.strip(failover(back, times), status({ notWell: [{ name: "m1", taints: [`x:${effect}`], next: {} }] }), NOW).lanes[1].parts.length;
  assert.deepEqual(["NoExecute", "PreferNoExecute", "NoSchedule"].map(marks), [2, 2, 1]);
  // Old copies that wait for their replacements are known to be there.
  const left = (more, of) => model.strip(failover(more, { ...times, healthy: undefined }), status(of), NOW).lanes[4].words;
  const [stay, unknown] = ["old copies stay until the new ones are healthy", "old copies: not known"];
  for (const [more, of, expected] of [
    [{}, { moving: [{ from: "m1", to: ["m2"] }] }, stay],
    [{}, { flows: [{ from: "m1", to: "m2", workloads: 2 }] }, stay],
    [{}, { moving: [{ from: "m3", to: ["m2"] }] }, unknown],
    [{ state: "Ended" }, { moving: [{ from: "m1", to: ["m2"] }] }, unknown],
    [{}, { kept: [{ from: "m1", to: ["m2"] }] }, "old copies stay until somebody releases them"],
    [{}, { kept: [{ from: "m1", to: ["m2"] }], moving: [{ from: "m1", to: ["m2"] }] }, stay],
    [{}, { kept: [{ from: "m3", to: ["m2"] }] }, unknown],
    [{ state: "Ended" }, { kept: [{ from: "m1", to: ["m2"] }] }, unknown],
    [{}, {}, unknown],
  ]) assert.equal(left(more, of), expected);
  const over = (more) => model.strip(failover(more, { ...times, recovered: "2026-01-01T00:06:00Z" }), status(), NOW).when;
  assert.deepEqual([over({ state: "Settling" }), over(back)], ["00:00:00Z to 00:06:00Z", "00:00:00Z to 00:06:00Z"]);
  const past = model.strip(failover({ state: "Ended" }, { ...times, recovered: "2026-01-01T00:04:00Z" }), status(), NOW);
  assert.deepEqual([past.title, past.when, past.lanes[0].words], ["m1: was silent", "2026-01-01 00:00:00Z to 00:04:00Z", "was silent for 4 min"]);
  const drain = model.strip(failover({ cause: { type: "Drain" } }, times), status(), NOW);
  assert.deepEqual(drain.lanes.map((it) => it.what), ["cause", "moved", "healthy", "old copies"]);
});

test("what comes next is what status says of the cluster", () => {
  const one = (name, words, seconds) => ({ name, next: { words, seconds } });
  const others = status({ notWell: [one("m1", "m1 stops", 9), one("m2", "m2 is back"), one("m3", "m3 waits"), one("m4", "m4 waits")], waiting: [{ clusters: ["m1"] }, { clusters: ["m3"] }] });
  for (const [it, of, words, seconds] of [
    [failover({ state: "Ended" }), status(), "ended"],
    [failover(), undefined, "not known: the fleet cannot be read"],
    [failover(), status({ isBlind: true }), "not known: the fleet cannot be read"],
    [failover(), status({ notWell: [{ name: "m1", next: { words: "x", seconds: 20 } }] }), "x", 20],
    [failover(), status({ ordered: [{ name: "m1", next: { words: "until undrained" } }] }), "until undrained"],
    [failover({ state: "Settling" }), status(), "nothing, the record ends soon"],
    [{ ...failover(), place: "eu: 3 of 9 clusters" }, status(), "the sum"],
    [{ ...failover(), place: "eu", clusters: ["m2", "m3"] }, others, "m3 waits"],
    [{ ...failover(), place: "us", clusters: ["m1", "m4"] }, others, "m1 stops", 9],
    [{ ...failover(), place: "all", clusters: ["m1", "m2", "m3", "m4"] }, others, "the sum"],
  ]) {
    const found = model.next(it, of);
    assert.equal(found.words, words);
    assert.equal(found.seconds, seconds);
  }
});

test("failovers of one cause in one region are one strip with their sums, those with the greatest loss first", () => {
  const clusterList = Array.from({ length: 12 }, (_, at) => cluster(`m${at}`, { region: at < 10 ? "eu" : "us" }));
  const one = (at, count, times) => ({ ...failover({ workloads: count }, times), metadata: { name: `f${at}` }, spec: { cluster: `m${at}`, startTime: `2026-01-01T00:0${at % 5}:00Z` } });
  const moved = { tainted: "2026-01-01T00:05:00Z", firstMove: "2026-01-01T00:06:00Z", lastMove: "2026-01-01T00:07:00Z", healthy: "2026-01-01T00:08:00Z" };
  const all = [one(11, { affected: 1, moved: 0, healthy: 0 }, {}), one(1, { affected: 5, moved: 5, healthy: 4 }, moved), one(2, { affected: 7, moved: 0, healthy: 0 }, {})];
  const of = status({ clusterList, oldCopies: [{ cluster: "m1", copies: 4 }, { cluster: "m2", copies: 1 }] });
  const { all: [eu, us], more } = model.strips(all, of, NOW);
  assert.deepEqual([eu.title, us.title, more], ["eu: 2 of 10 clusters silent", "m11: silent", 0]);
  assert.equal(eu.next, "see Next above");
  assert.deepEqual(eu.lanes.map((it) => it.words), ["silent for 9 min", "marked as failed after 4 min", "5 of 12 moved", "4 of 5 healthy", "5 old copies not confirmed gone"]);
  // Those that were heard last at different times are shown with both.
  const heard = (name, time) => cluster(name, { state: "silent", region: "eu", begun: time });
  const apart = status({ clusterList: [heard("m1", "2026-01-01T00:01:00Z"), heard("m2", "2026-01-01T00:09:40Z"), cluster("m11", { region: "us" })] });
  const range = model.strips(all, apart, NOW).all[0];
  assert.deepEqual([range.lanes[0].words, range.when], ["silent for 20 s to 9 min", "last heard 00:01:00Z to 00:09:40Z"]);
  // Of one whose cause returned only this time counts.
  const again = { ...all[1], status: { ...all[1].status, workloads: { affected: 5, moved: 4, healthy: 4 }, returns: [{ recovered: "2026-01-01T00:07:30Z", returned: "2026-01-01T00:08:00Z" }] } };
  const [both] = model.strips([again, all[0], all[2]], of, NOW).all;
  assert.deepEqual(both.lanes.map((it) => it.words), ["silent for 8 min", "not marked as failed", "0 of 8 moved"]);
  // Two are listed by themselves.
  assert.equal(model.strips(all.slice(1), of, NOW).all.length, 2);
});

test("room is shown in percent, after a loss too, and what is not known has no number", () => {
  const amounts = (allocatable, requested) => ({ allocatable, requested });
  const top = [
    { name: "m1", ready: "True", resources: { cpu: amounts("12", "3"), memory: amounts("48Gi", "24Gi"), pods: amounts("100", "10") } },
    { name: "m2", ready: "Unknown", resources: {} },
  ];
  const many = model.room([...Array.from({ length: 11 }, (_, at) => ({ ...top[0], name: `n${at}` })), top[1]]);
  assert.deepEqual([many.rows.length, many.more, many.old], [10, 1, 1], "what is not ready has no room that is known");
  const forecast = { lost: ["m2"], drained: [], room: { m1: { cpu: { after: "1500m" }, memory: { after: "24Gi" } } } };
  const { rows } = model.room(top, forecast);
  assert.deepEqual(rows[0].bars, [{ resource: "cpu", now: 25, after: 88 }, { resource: "memory", now: 50, after: 50 }, { resource: "pods", now: 10, after: undefined }]);
  assert.deepEqual([rows[1].isOld, rows[1].isGone, rows[1].bars[0].now], [true, true, undefined]);
  // Without a forecast: what the worst other cluster would bring, by free room.
  const three = ["a", "b", "c"].map((name, at) => ({ name, ready: "True", resources: { cpu: amounts("10", String(2 + at)) } }));
  const others = Object.fromEntries(model.room(three).rows.map((it) => [it.name, it.bars[0]]));
  assert.deepEqual(others.a, { resource: "cpu", now: 20, after: 41, other: "c" });
  assert.deepEqual(others.c, { resource: "cpu", now: 40, after: 53, other: "b" });
  const drained = Object.fromEntries(model.room(three.map((it) => ({ ...it, isKept: it.name === "b" }))).rows.map((it) => [it.name, it.bars[0]]));
  assert.deepEqual([drained.a.after, drained.b.after, drained.c.after], [60, undefined, 60], "what an order keeps free takes nothing over");
  assert.equal(model.room([three[0]]).rows[0].bars[0].after, undefined);
  for (const [text, expected] of [["250m", 0.25], ["1e3", 1000], ["1Ki", 1024], ["x", undefined], [null, undefined]]) assert.equal(model.quantity(text), expected);
});

test("an address names the same part again, and nothing else is one", () => {
  const hash = model.workloadAddress("ClusterRole system:node");
  assert.equal(hash, "#workload/-/ClusterRole/system:node");
  assert.deepEqual(model.route(hash), ["workload", "-", "ClusterRole", "system:node"]);
  assert.equal(model.titleOf({ kind: "ClusterRole", name: "system:node" }), "ClusterRole system:node");
  const web = model.titleOf({ kind: "Deployment", namespace: "default", name: "web" });
  assert.equal(model.workloadAddress(web), "#workload/default/Deployment/web");
  for (const wrong of ["", "#fleet", "#cluster", "#cluster/", "#cluster/a/b", "#cluster/%", "#workload/a/b"]) assert.equal(model.route(wrong), undefined, wrong);
});
