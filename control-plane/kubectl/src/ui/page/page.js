// The page of `kubectl muster ui`. It shows what the commands say and decides nothing itself.

import { KINDS, STATES, address, ago, groupings, headline, inTime, moment, span, stateOf, workloadAddress } from "./model.js";
import { drawMap, drawRoom, drawStrips } from "./draw.js";
import { Rows, byId, fillList, patch, say, tables } from "./rows.js";
import * as stories from "./stories.js";

const PAUSE = 3000; // milliseconds between the end of one look and the next
const UNSEEN = 10000; // the same while nobody sees more than the title of the tab
const ROOM = 10; // looks after which room is read again: it changes slowly
const PATIENCE = 60000; // after which a look that has no answer is given up
const OLD = 15; // seconds by which an answer may be late before what is shown counts as old
const SHOWN = 200; // lines of a list

let skew = 0; // milliseconds by which the program's clock is ahead of the browser's
const now = () => Date.now() + skew;

// Clusters.

let orders = new Map(); // by cluster: what a person has ordered
const ORDERS = { Drained: "drained", Cordoned: "cordoned", "Drained,Cordoned": "drained and cordoned", DrainIncomplete: "kept free by a drain that was not completed" };
function ordered(it) {
  const order = orders.get(it.name);
  if (!order) return "";
  const rate = order.fault ? `, nothing leaves: ${order.fault}` : order.perSecond ? `, at most ${order.perSecond} a second` : "";
  const by = `${order.by ? ` by ${order.by}` : ""}${order.reason ? ` (${order.reason})` : ""}`;
  return `${ORDERS[order.order] || order.order}${by}${order.since ? ` ${ago(order.since, now())}` : ""}${rate}`;
}
function health(it) {
  const state = stateOf(it, orders.get(it.name));
  const { sign, words } = STATES[state];
  const own = { attention: `Ready, ${it.concern || "tainted"}`, ordered: `Ready${it.paused ? ", paused" : ""}`, ready: "Ready", notReady: "Not ready" }[state] || `Unknown, ${words}`;
  return `${isOld() ? "? Last:" : sign} ${[own, ordered(it)].filter(Boolean).join(", ")}`;
}
const isOld = () => document.body.classList.contains("old");
let leaves = new Map(); // by cluster: when the first of its workloads leaves, in milliseconds
const table = new Rows("clusters", (it) => it.name, [
  { title: "Cluster", head: true, text: (it) => it.name, href: (it) => address("cluster", it.name) },
  { title: "State", text: health, kind: (it) => STATES[stateOf(it, orders.get(it.name))].kind },
  { title: "Reason", text: (it) => it.reason },
  { title: "Since", text: (it) => (it.since ? ago(it.since, now()) : "–") },
  { title: "Last heard", text: (it) => ago(it.lastHeard, now()) },
  { title: "First leaves", text: (it) => countdown(leaves.get(it.name)) },
  { title: "Nodes ready", text: (it) => (it.nodes === null ? "–" : `${it.readyNodes} of ${it.nodes}${it.ready === "True" ? "" : ", as last reported"}`) },
  { title: "Workloads", text: (it) => (it.workloads === null ? "–" : String(it.workloads)) },
  { title: "Old copies", text: (it) => (it.oldCopies === null ? "–" : it.oldCopies && it.ready !== "True" ? `${it.oldCopies} not confirmed gone` : String(it.oldCopies)) },
  { title: "Region", text: (it) => it.region || "–" },
  { title: "Taints", long: true, text: (it) => it.taints.join(", ") || "–" },
  { title: "What if", text: () => "lost?", label: (it) => `What if ${it.name} is lost?`, press: (it) => whatIf(it.name) },
], "none");
const countdown = (at) => (at === undefined ? "–" : at > now() ? inTime(at, now()) : "now, at the pace");

// Queue.

const LISTS = {
  stranded: ["✖ Stranded", "bad"],
  unheard: ["? Unheard", "bad"],
  unplaced: ["∅ Unplaced", "bad"],
  withoutDependencies: ["! Without dependencies", "bad"],
  waiting: ["◷ Waiting", "warn"],
  moving: ["→ Moving", "good"],
};
const queue = new Rows("queue", (it) => `${it.state} ${it.workload} ${it.from || ""}`, [
  { title: "State", text: (it) => LISTS[it.state][0], kind: (it) => LISTS[it.state][1] },
  { title: "Workload", head: true, text: (it) => it.workload, href: (it) => workloadAddress(it.workload) },
  { title: "Reason", text: (it) => it.reason },
  { title: "Detail", long: true, text: (it) => it.message },
  { title: "Since", text: (it) => (it.since ? ago(it.since, now()) : "–") },
  { title: "At the latest", text: (it) => countdown(it.until) },
], "nothing moves or waits");

const UNKNOWN = "? not known";
const BY_DEFAULT = ["gates", "defaults"]; // where a pace comes from that nobody says is in force
function showHeadline(status) {
  const { severity, sentence, title, icon } = headline(status);
  say(byId("verdict"), sentence);
  byId("verdict").className = KINDS[severity];
  mark(title, icon);
}
function showStatus(status, code, read) {
  queue.empty = code === 2 ? UNKNOWN : "nothing moves or waits";
  const lists = ["stranded", "unheard", "unplaced", "withoutDependencies", "waiting", "moving"];
  const titles = { unheard: "State unknown", withoutDependencies: "Without dependencies" };
  const leader = status.leader;
  // What could not be read has no list of orders: the last known ones stay.
  if (code !== 2) orders = new Map(status.ordered.map((it) => [it.name, it]));
  const ofLeader = leader.isUnread ? UNKNOWN : leader.holder
    ? `${leader.acts ? "✔" : "✖"} ${leader.holder}, ${leader.acts ? "acts" : "DOES NOT ACT"}, renewed ${ago(leader.renewed, now())}` : "✖ none";
  const left = (status.oldCopies || []).map((it) => `${it.copies} in ${it.cluster} (${it.state || "being removed"})`);
  const count = (it) => it === "unheard" ? `${status.unknown}, ${status.counts.unheard} of them are not moved` : String(status.counts[it]);
  // What could not be read is not zero.
  const isUnread = code === 2;
  const facts = [
    ["Leader", ofLeader],
    ["Failover", status.failover === null ? UNKNOWN : status.failover ? "✔ on" : "! OFF"],
    ["Pace", isUnread ? UNKNOWN : `${leader.acts || leader.isUnread ? "" : "nothing moves unless somebody leads; then "}${status.pace.perSecond} a second (${status.pace.band}); ${status.pace.failed} of ${status.pace.counted} clusters count as failed, ${status.pace.drained} of them because drained${BY_DEFAULT.includes(status.settingsFrom) ? "; ! by the default flags, which may not be those of the control plane" : ""}`],
    ["Clusters", isUnread ? UNKNOWN : `${status.clusters}, ${status.counts.notWell} need attention, ${status.counts.ordered} drained or cordoned`],
    ["Workloads", isUnread ? UNKNOWN : String(status.workloads)],
    ...lists.map((it) => [titles[it] || it[0].toUpperCase() + it.slice(1), isUnread ? UNKNOWN : count(it)]),
    ["Old copies", status.oldCopies === null ? UNKNOWN : left.length ? `! not confirmed gone: ${left.join(", ")}; they may still run` : "0"],
  ];
  patch(byId("facts"), facts.map(([name, text]) => ["div", {}, [["dt", {}, name], ["dd", {}, text]]]));
  const notes = [
    ...(isUnread ? [] : status.unread).map((it) => `✖ Could not be read: ${it}`),
    ...status.paused.map((it) => `! Paused: ${it}`),
    ...status.expires.map((it) => `! ${it.what}: ends ${moment(it.end)}`),
  ];
  fillList("notes", notes);
  const seconds = (it) => (it.atMostSeconds === undefined ? undefined : read + 1000 * it.atMostSeconds);
  queue.set(lists.flatMap((state) => status[state].map((it) => state === "moving"
    ? { state, ...it, reason: "leaves", message: `${it.from}; now on ${it.to.join(", ") || "no cluster yet"}` }
    : { state, ...it, until: seconds(it) })), lists.reduce((sum, it) => sum + status.counts[it], 0));
  leaves = new Map(status.notWell.filter((it) => it.firstLeavesSeconds !== undefined)
    .map((it) => [it.name, read + 1000 * it.firstLeavesSeconds]));
}
// What the tab says while it is not looked at.
function mark(title, icon) {
  if (document.title !== title) document.title = title;
  if (byId("icon").getAttribute("href") !== icon) byId("icon").setAttribute("href", icon);
}

// History.

const FAILOVER = { Ended: ["✔ Ended", "good"], Settling: ["◷ Settling", "warn"], Active: ["! Active", "bad"] };
const failover = (it) => FAILOVER[it.status?.state] || [`? ${it.status?.state || "not told yet"}`, "warn"];
const number = (it, name) => String(it.status?.workloads?.[name] ?? "–");
const past = new Rows("history", (it) => it.metadata.name, [
  { title: "When", head: true, text: (it) => moment(it.spec.startTime), href: (it) => address("failover", it.metadata.name) },
  { title: "Last", text: (it) => moment(it.status?.returns?.at(-1)?.returned || it.spec.startTime) },
  { title: "Times", text: (it) => String(1 + (it.status?.relapses || 0)) },
  { title: "Cluster", text: (it) => it.spec.cluster },
  { title: "State", text: (it) => failover(it)[0], kind: (it) => failover(it)[1] },
  { title: "Cause", text: (it) => it.status?.cause?.type || "–" },
  { title: "Workloads", text: (it) => number(it, "affected") },
  { title: "Moved", text: (it) => number(it, "moved") },
  { title: "Healthy", text: (it) => number(it, "healthy") },
  { title: "Stranded", text: (it) => number(it, "stranded") },
  { title: "Held", text: (it) => (it.status ? String(it.status.workloads?.held || 0) : "–") },
  { title: "Median to healthy", text: (it) => (it.status?.timeToHealthy ? span(it.status.timeToHealthy.medianSeconds) : "–") },
], "no failover is recorded");
// What if.

const OUTCOMES = { stranded: ["✖ Stranded", "bad"], moves: ["→ Moves", "good"], stays: ["= Stays", "warn"] };
const forecast = new Rows("forecast", (it) => `${it.state} ${it.name} ${it.from || it.cluster}`, [
  { title: "Outcome", text: (it) => OUTCOMES[it.state][0], kind: (it) => OUTCOMES[it.state][1] },
  { title: "Workload", head: true, text: (it) => it.name, href: (it) => workloadAddress(it.name) },
  { title: "From", text: (it) => it.from || it.cluster },
  { title: "To, or why not", long: true, text: (it) => it.reason || [].concat(it.to).map((to) => to.name || String(to)).join(", ") },
  { title: "After", text: (it) => (it.afterSeconds === undefined ? "–" : span(it.afterSeconds)) },
], "no workload is concerned");
function whatIf(name) {
  byId("whatif-names").value = name;
  document.querySelector("input[name=how][value=lost]").checked = true;
  foretell();
}
let foretold; // the last forecast, and what it is of
async function foretell() {
  const how = document.querySelector("input[name=how]:checked");
  const names = byId("whatif-names").value;
  const title = `If ${how.parentElement.textContent.trim()}: ${names}`;
  byId("forecast").hidden = false;
  byId("forecast").focus();
  say(byId("forecast-title"), `${title}: reading…`);
  fillList("forecast-facts", []);
  forecast.set([]);
  try {
    const { said } = await ask(`simulate?${new URLSearchParams({ [how.value]: names })}`);
    say(byId("forecast-title"), title);
    foretold = { said, title: `${title} (forecast of ${moment(new Date(now()).toISOString())})` };
    byId("room-clear").hidden = false;
    draw();
    const count = (state) => said[state].length;
    fillList("forecast-facts", [
      ...(said.failoverIsOff ? ["! Failover is OFF in the running control plane; this is with it on"] : []),
      `→ ${count("moves")} move, ✖ ${count("stranded")} are stranded, = ${count("stays")} stay`,
      ...(said.partedUnknown ? [`? Not known whether workloads would be parted from what they refer to: ${said.partedUnknown}`] : []),
      ...said.parted.slice(0, SHOWN).map((it) => `! ${it.kind} ${it.namespace ? `${it.namespace}/` : ""}${it.name} would be parted from what it refers to (its policy does not set propagateDeps): ${it.missing.map((lacks) => `${lacks.kind} ${lacks.name} not in ${lacks.clusters.join(", ")}`).join("; ")}`),
      `Pace: ${said.pace.evictionsPerSecond} a second, ${said.pace.failed} of ${said.pace.clusters} clusters failed`,
      ...Object.entries(said.taints).slice(0, SHOWN).flatMap(([cluster, coming]) => coming.map((it) => `after ${span(it.afterSeconds)}: ${cluster} gets taint ${it.taint}`)),
    ]);
    const name = ({ workload: it }) => `${it.kind} ${it.namespace ? `${it.namespace}/` : ""}${it.name}`;
    forecast.set(Object.keys(OUTCOMES).flatMap((state) => said[state].map((it) => ({ state, name: name(it), ...it }))));
  } catch (error) {
    say(byId("forecast-title"), `✖ ${title}: ${error.message}`);
  }
}
byId("room-clear").addEventListener("click", () => {
  foretold = undefined;
  byId("room-clear").hidden = true;
  draw();
});
document.addEventListener("click", ({ target }) => target.dataset?.lost && whatIf(target.dataset.lost));
byId("explain-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const [kind, name] = byId("explain-what").value.trim().split(/[/ ]+/);
  if (!name) say(byId("explain-error"), "✖ Write a kind and a name, such as deployment/web");
  else location.hash = address("workload", byId("explain-namespace").value.trim(), kind, name);
});
byId("whatif-form").addEventListener("submit", (event) => {
  event.preventDefault();
  foretell();
});

// Drawing.

const last = {}; // what was read last: clusters, status, failovers, top
let known; // when the fleet was known last, in milliseconds
function draw() {
  const { clusters, status, failovers, top } = last;
  if (!clusters && faults.length) say(byId("map-more"), "? not known: the clusters could not be read");
  if (clusters) {
    const by = byId("by");
    const keys = groupings(clusters);
    if (keys.join() !== [...by.options].map((it) => it.value).join()) by.replaceChildren(...keys.map((it) => new Option(it, it, false, it === by.value)));
    drawMap({ clusters, by: by.value, orders, status, failovers: failovers || [], now: now(), old: isOld() });
    stories.tell({ clusters, orders, status, failovers: failovers || [], now: now(), health });
  }
  // While nothing is known, time goes on and what it did does not.
  if (status && !status.isBlind && !isOld()) known = now();
  drawStrips(failovers, status, known ?? now());
  // Whether a cluster is heard is known better than its room.
  const ready = new Map((clusters || []).map((it) => [it.name, it.ready]));
  if (top) drawRoom(top.map((it) => ({ ...it, ready: ready.get(it.name) ?? it.ready })), foretold?.said, foretold?.title);
  if (last.room) say(byId("room-read"), `Read ${ago(new Date(last.room).toISOString(), now())}: it is read each half minute.`);
}
byId("by").addEventListener("change", draw);
let wide = innerWidth;
addEventListener("resize", () => {
  if (wide !== innerWidth) draw();
  wide = innerWidth;
});

// Looking.

const kept = new Map(); // by path: the last answer, and its tag
async function ask(path) {
  const asked = performance.now();
  const before = kept.get(path);
  let response;
  try {
    const headers = before ? { "If-None-Match": before.tag } : {};
    response = await fetch(`api/${path}`, { headers, signal: AbortSignal.timeout(PATIENCE) });
  } catch {
    throw new Error("kubectl muster ui does not answer: has it been stopped?");
  }
  const isSame = response.status === 304;
  const said = isSame ? before.said : await response.json();
  if (!response.ok && !isSame) throw new Error(said.error);
  if (LOOKED.includes(path)) kept.set(path, { said, tag: response.headers.get("ETag") });
  const date = Date.parse(response.headers.get("Date"));
  if (Math.abs(date - Date.now()) > 2000) skew = date - Date.now();
  const age = 1000 * Number(response.headers.get("Age"));
  return { said, code: Number(response.headers.get("Muster-Exit-Code")), read: asked - age, lasts: Number(response.headers.get("Muster-Lasts")) };
}
const LOOKED = ["status", "history", "top"];

let seen; // by performance.now(): how old what is shown is at most
let faults = [];
let isLost = false; // whether the last look at the state of the fleet failed
let patience = OLD; // seconds after which what is shown counts as old
let looks = 0;
async function look() {
  const found = [];
  let failed = true;
  try {
    const { said, code, read, lasts } = await ask("status");
    const isBlind = code === 2;
    failed = isBlind && !said.clusterList;
    last.status = { ...said, read: now() - (performance.now() - read), isBlind };
    showStatus(last.status, code, last.status.read);
    if (isBlind) found.push(said.summary.sentence);
    // In a large fleet an answer is given again for longer.
    if (!failed) [seen, patience] = [read, OLD + lasts];
    const rank = (it) => Object.keys(STATES).indexOf(stateOf(it, orders.get(it.name)));
    if (said.clusterList) last.clusters = said.clusterList;
    if (said.clusterList) table.set([...said.clusterList].sort((a, b) => rank(a) - rank(b) || (a.name < b.name ? -1 : 1)));
    else say(table.count, UNKNOWN);
  } catch (fault) {
    found.push(fault.message);
  }
  isLost = failed;
  const error = byId("history-error");
  try {
    const { said } = await ask("history");
    last.failovers = said;
    past.set(said);
    error.hidden = true;
  } catch (fault) {
    say(error, `✖ ${fault.message}`);
    error.hidden = false;
  }
  faults = found;
  tick();
  if (looks++ % ROOM) return;
  try {
    last.top = (await ask("top")).said;
    last.room = now();
    say(byId("room-error"), "");
  } catch (fault) {
    looks = 0;
    say(byId("room-error"), `? not known: ${fault.message}`);
  }
}
function tick() {
  const age = seen === undefined ? undefined : (performance.now() - seen) / 1000;
  say(byId("read"), age === undefined ? "not read yet" : `last updated ${span(age)} ago`);
  // A browser calls a page that nobody sees once a minute.
  const old = age !== undefined && age > patience + (document.hidden ? 60 : 0);
  const words = [];
  if (faults.length) words.push("✖ THE FLEET CANNOT BE READ", ...faults.slice(0, 5));
  if (old) words.push(`✖ WHAT IS SHOWN IS OLD: it was read ${span(age)} ago`);
  if (age === undefined ? words.length : isLost || old) {
    say(byId("verdict"), age === undefined ? "✖ Nothing could be read" : "? Not known now: what is shown is the last that could be read");
    byId("verdict").className = "bad";
    mark("? not known – Muster", "unknown.svg");
  } else if (last.status) {
    showHeadline(last.status);
  }
  byId("banner").hidden = !words.length;
  say(byId("banner"), words.join("\n"));
  document.body.classList.toggle("old", age === undefined ? words.length > 0 : isLost || old);
  for (const table of tables) table.tick();
  draw();
}
async function watch() {
  for (;;) {
    await look().catch((error) => (faults = [String(error)]));
    await new Promise((resume) => setTimeout(resume, document.hidden ? UNSEEN : PAUSE));
  }
}
setInterval(tick, 1000);
stories.start(ask, draw);
document.addEventListener("visibilitychange", () => document.hidden || tick());
watch();
