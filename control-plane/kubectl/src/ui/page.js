// The page of `kubectl muster ui`. It shows what the commands say and decides nothing itself; all
// text of the fleet is set as text, never as markup.
"use strict";

const PAUSE = 3000; // milliseconds between the end of one look and the next
const PATIENCE = 60000; // after which a look that has no answer is given up
const OLD = 15; // seconds after which what is shown counts as old
const SHOWN = 200; // rows of a table

const byId = (id) => document.getElementById(id);
const say = (element, text) => {
  if (element.textContent !== text) element.textContent = text;
};
const make = (name, text) => {
  const element = document.createElement(name);
  if (text !== undefined) element.textContent = text;
  return element;
};

// Times.

let skew = 0; // milliseconds by which the program's clock is ahead of the browser's
const now = () => Date.now() + skew;
function span(seconds) {
  const all = Math.max(0, Math.round(seconds));
  const pad = (n) => String(n).padStart(2, "0");
  if (all < 120) return `${all} s`;
  if (all < 7200) return `${Math.floor(all / 60)} min ${pad(all % 60)} s`;
  if (all < 172800) return `${Math.floor(all / 3600)} h ${pad(Math.floor((all % 3600) / 60))} min`;
  return `${Math.floor(all / 86400)} days`;
}
const moment = (time) => (time ? time.replace("T", " ").replace(/\.\d+Z$/, "Z") : "–");
const ago = (time) => (time ? `${span((now() - Date.parse(time)) / 1000)} ago` : "never");

// Tables: rows keep their elements from look to look, so that the focus stays where it is.

const tables = [];
class Rows {
  // columns: {title, text(row), kind?(row), press?(row)}
  constructor(name, key, columns, empty) {
    Object.assign(this, { key, columns, empty, items: [], rows: new Map() });
    this.filter = byId(`${name}-filter`);
    this.count = byId(`${name}-count`);
    const table = byId(`${name}-table`);
    const line = make("tr");
    for (const column of columns) {
      const head = make("th", column.title);
      head.scope = "col";
      line.append(head);
    }
    const head = make("thead");
    head.append(line);
    this.body = make("tbody");
    table.append(head, this.body);
    this.filter.addEventListener("input", () => this.draw());
    tables.push(this);
  }

  set(items) {
    this.items = items;
    this.draw();
  }

  draw() {
    const wanted = this.filter.value.trim().toLowerCase().split(/\s+/).filter(Boolean);
    const text = (item) => this.columns.map((it) => (it.press ? "" : it.text(item))).join(" ").toLowerCase();
    const found = wanted.length
      ? this.items.filter((item) => {
          const all = text(item);
          return wanted.every((word) => all.includes(word));
        })
      : this.items;
    const shown = found.slice(0, SHOWN);
    const more = found.length - shown.length;
    const of = wanted.length ? `${found.length} of ${this.items.length} match` : `${this.items.length}`;
    say(this.count, !this.items.length ? this.empty : more ? `${of}; ${more} more: filter to see them` : of);
    const focus = document.activeElement;
    const rows = new Map();
    shown.forEach((item, at) => {
      const key = this.key(item);
      const row = (!rows.has(key) && this.rows.get(key)) || this.row();
      rows.set(rows.has(key) ? `${key}\u0000${at}` : key, row);
      row.item = item;
      this.fill(row);
      if (this.body.children[at] !== row) this.body.insertBefore(row, this.body.children[at] || null);
    });
    while (this.body.children.length > shown.length) this.body.lastChild.remove();
    this.rows = rows;
    if (focus !== document.activeElement && document.contains(focus)) focus.focus({ preventScroll: true });
  }

  row() {
    const row = make("tr");
    for (const column of this.columns) {
      const cell = make(column.head ? "th" : "td");
      if (column.head) cell.scope = "row";
      if (column.press) {
        const button = make("button");
        button.type = "button";
        button.addEventListener("click", () => column.press(row.item));
        cell.append(button);
      }
      row.append(cell);
    }
    return row;
  }

  fill(row) {
    this.columns.forEach((column, at) => {
      const cell = row.children[at];
      if (column.press) {
        say(cell.firstChild, column.text(row.item));
        const label = column.label(row.item);
        if (cell.firstChild.getAttribute("aria-label") !== label) cell.firstChild.setAttribute("aria-label", label);
        return;
      }
      say(cell, column.text(row.item));
      const kind = column.kind ? `state ${column.kind(row.item)}` : column.long ? "text" : "";
      if (cell.className !== kind) cell.className = kind;
    });
  }

  // Times go on between two looks.
  tick() {
    for (const row of this.body.children) this.fill(row);
  }
}

// Clusters.

let orders = new Map(); // by cluster: what a person has ordered
const ORDERS = { Drained: "drained", Cordoned: "cordoned", "Drained,Cordoned": "drained and cordoned", DrainIncomplete: "kept free by a drain that was not completed" };
function ordered(it) {
  const order = orders.get(it.name);
  if (!order) return "";
  const rate = order.fault ? `, nothing leaves: ${order.fault}` : order.perSecond ? `, at most ${order.perSecond} a second` : "";
  return `, ${ORDERS[order.order] || order.order}${order.since ? ` ${ago(order.since)}` : ""}${rate}`;
}
function health(it) {
  const [state, kind, rank] = ownHealth(it);
  const order = ordered(it);
  return order ? [`${state.replace("✔", "!")}${order}`, kind === "good" ? "warn" : kind, Math.min(rank, 2)] : [state, kind, rank];
}
function ownHealth(it) {
  if (it.ready === "True") {
    if (it.concern) return [`! Ready, ${it.concern}`, "warn", 2];
    if (it.paused) return ["! Ready, paused", "warn", 2];
    if (orders.has(it.name)) return ["✔ Ready", "good", 3];
    return it.taints.length ? ["! Ready, tainted", "warn", 2] : ["✔ Ready", "good", 3];
  }
  if (it.ready === "False") return ["✖ Not ready", "bad", 1];
  return [it.reason === "NeverReported" ? "? Unknown, never heard" : "? Unknown, silent", "bad", 0];
}
let leaves = new Map(); // by cluster: when the first of its workloads leaves, in milliseconds
const clusters = new Rows("clusters", (it) => it.name, [
  { title: "Cluster", head: true, text: (it) => it.name },
  { title: "State", text: (it) => health(it)[0], kind: (it) => health(it)[1] },
  { title: "Reason", text: (it) => it.reason },
  { title: "Since", text: (it) => (it.since ? ago(it.since) : "–") },
  { title: "Last heard", text: (it) => ago(it.lastHeard) },
  { title: "First leaves", text: (it) => countdown(leaves.get(it.name)) },
  { title: "Nodes ready", text: (it) => (it.nodes === null ? "–" : `${it.readyNodes} of ${it.nodes}${it.ready === "True" ? "" : ", as last reported"}`) },
  { title: "Workloads", text: (it) => (it.workloads === null ? "–" : String(it.workloads)) },
  { title: "Old copies", text: (it) => (it.oldCopies === null ? "–" : it.oldCopies && it.ready !== "True" ? `${it.oldCopies} not confirmed gone` : String(it.oldCopies)) },
  { title: "Region", text: (it) => it.region || "–" },
  { title: "Taints", long: true, text: (it) => it.taints.join(", ") || "–" },
  { title: "What if", text: () => "lost?", label: (it) => `What if ${it.name} is lost?`, press: (it) => whatIf(it.name) },
], "none");
function countdown(at) {
  if (at === undefined) return "–";
  return at > now() ? `in ${span((at - now()) / 1000)}` : "now, at the pace";
}

// Queue.

const KINDS = {
  stranded: ["✖ Stranded", "bad"],
  unheard: ["? Unheard", "bad"],
  unplaced: ["∅ Unplaced", "bad"],
  withoutDependencies: ["! Without dependencies", "bad"],
  waiting: ["◷ Waiting", "warn"],
  moving: ["→ Moving", "good"],
};
const queue = new Rows("queue", (it) => `${it.state} ${it.workload} ${it.from || ""}`, [
  { title: "State", text: (it) => KINDS[it.state][0], kind: (it) => KINDS[it.state][1] },
  { title: "Workload", head: true, text: (it) => it.workload },
  { title: "Reason", text: (it) => it.reason },
  { title: "Detail", long: true, text: (it) => it.message },
  { title: "Since", text: (it) => (it.since ? ago(it.since) : "–") },
  { title: "At the latest", text: (it) => countdown(it.until) },
], "nothing moves or waits");

const UNKNOWN = "? not known";
const BY_DEFAULT = ["gates", "defaults"]; // where a pace comes from that nobody says is in force
function showStatus(status, code, read) {
  const verdicts = [["✔ All is well", "good"], ["! Something needs attention", "warn"], ["✖ Too little could be read", "bad"]];
  const [verdict, kind] = verdicts[code] || verdicts[2];
  say(byId("verdict"), verdict);
  byId("verdict").className = kind;
  queue.empty = code === 2 ? UNKNOWN : "nothing moves or waits";
  const lists = ["stranded", "unheard", "unplaced", "withoutDependencies", "waiting", "moving"];
  const titles = { unheard: "State unknown", withoutDependencies: "Without dependencies" };
  const leader = status.leader;
  orders = new Map(status.ordered.map((it) => [it.name, it]));
  const ofLeader = leader.isUnread ? UNKNOWN : leader.holder
    ? `${leader.acts ? "✔" : "✖"} ${leader.holder}, ${leader.acts ? "acts" : "DOES NOT ACT"}, renewed ${ago(leader.renewed)}` : "✖ none";
  const left = (status.oldCopies || []).map((it) => `${it.copies} in ${it.cluster} (${it.state || "being removed"})`);
  const count = (it) => it === "unheard" ? `${status.unknown}, ${status.unheard.length} of them are not moved` : String(status[it].length);
  // What could not be read is not zero.
  const isUnread = code === 2;
  const facts = [
    ["Leader", ofLeader],
    ["Failover", status.failover === null ? UNKNOWN : status.failover ? "✔ on" : "! OFF"],
    ["Pace", isUnread ? UNKNOWN : `${leader.acts || leader.isUnread ? "" : "nothing moves unless somebody leads; then "}${status.pace.perSecond} a second (${status.pace.band}); ${status.pace.failed} of ${status.pace.counted} clusters count as failed, ${status.pace.drained} of them because drained${BY_DEFAULT.includes(status.settingsFrom) ? "; ! by the default flags, which may not be those of the control plane" : ""}`],
    ["Clusters", isUnread ? UNKNOWN : `${status.clusters}, ${status.notWell.length} need attention, ${status.ordered.length} drained or cordoned`],
    ["Workloads", isUnread ? UNKNOWN : String(status.workloads)],
    ...lists.map((it) => [titles[it] || it[0].toUpperCase() + it.slice(1), isUnread ? UNKNOWN : count(it)]),
    ["Old copies", status.oldCopies === null ? UNKNOWN : left.length ? `! not confirmed gone: ${left.join(", ")}; they may still run` : "0"],
  ];
  const list = byId("facts");
  if (list.children.length !== 2 * facts.length) list.replaceChildren(...facts.flatMap(() => [make("dt"), make("dd")]));
  facts.flat().forEach((text, at) => say(list.children[at], text));
  const notes = [
    ...status.unread.map((it) => `✖ Could not be read: ${it}`),
    ...status.paused.map((it) => `! Paused: ${it}`),
    ...status.expires.map((it) => `! ${it.what}: ends ${moment(it.end)}`),
  ];
  fillList("notes", notes);
  const seconds = (it) => (it.atMostSeconds === undefined ? undefined : read + 1000 * it.atMostSeconds);
  queue.set(lists.flatMap((state) => status[state].map((it) => state === "moving"
    ? { state, ...it, reason: "leaves", message: `${it.from}; now on ${it.to.join(", ") || "no cluster yet"}` }
    : { state, ...it, until: seconds(it) })));
  leaves = new Map(status.notWell.filter((it) => it.firstLeavesSeconds !== undefined)
    .map((it) => [it.name, read + 1000 * it.firstLeavesSeconds]));
}
function fillList(id, texts) {
  const list = byId(id);
  while (list.children.length > texts.length) list.lastChild.remove();
  texts.forEach((text, at) => {
    if (!list.children[at]) list.append(make("li"));
    say(list.children[at], text);
  });
}

// History.

const STEPS = [
  ["silentSince", "last heard"], ["notReady", "not ready"], ["tainted", "tainted"], ["firstMove", "the first workload moves"],
  ["lastMove", "the last workload moves"], ["healthy", "all that moved are healthy"], ["recovered", "the cause is over"],
  ["cleaned", "the last old copy is gone"], ["ended", "ended"],
];
const FAILOVER = { Ended: ["✔ Ended", "good"], Settling: ["◷ Settling", "warn"], Active: ["! Active", "bad"] };
const failover = (it) => FAILOVER[it.status?.state] || [`? ${it.status?.state || "not told yet"}`, "warn"];
const number = (it, name) => String(it.status?.workloads?.[name] ?? "–");
const past = new Rows("history", (it) => it.metadata.name, [
  { title: "When", head: true, text: (it) => moment(it.spec.startTime) },
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
  { title: "Timeline", text: () => "show", label: (it) => `Timeline of ${it.metadata.name}`, press: (it) => tell(it, true) },
], "no failover is recorded");
let told;
function tell(it, moves) {
  told = it.metadata.name;
  const status = it.status || {};
  const start = Date.parse(it.spec.startTime);
  say(byId("story-title"), `${told}: ${status.cause?.type || "?"} of ${it.spec.cluster}, ${failover(it)[0]}`);
  say(byId("story-cause"), status.cause?.message || "");
  const returns = (status.returns || []).flatMap((it) => [[it.recovered, "the cause is over"], [it.returned, "the cause returns"]]);
  const steps = [...STEPS.map(([key, words]) => [status.times?.[key], words]), ...returns].filter(([time]) => time);
  steps.sort(([a], [b]) => Date.parse(a) - Date.parse(b));
  fillList("story-steps", steps.map(([time, words]) => {
    const after = (Date.parse(time) - start) / 1000;
    return `${moment(time)}, ${after < 0 ? `${span(-after)} before` : `after ${span(after)}`}: ${words}`;
  }));
  fillList("story-more", [
    ...(status.cause?.command ? [`Command: ${status.cause.command}`] : []),
    ...(status.targets || []).map((to) => `${to.workloads} to ${to.cluster}`),
    ...(status.strandedReasons || []).map((why) => `✖ ${why.workloads} stranded: ${why.reason}`),
    ...(status.workloads?.held ? [`◷ at most ${status.workloads.held} held at a time: too many clusters had failed, or movement was paused`] : []),
  ]);
  byId("story").hidden = false;
  if (moves) byId("story").focus();
}

// What if.

const OUTCOMES = { stranded: ["✖ Stranded", "bad"], moves: ["→ Moves", "good"], stays: ["= Stays", "warn"] };
const forecast = new Rows("forecast", (it) => `${it.state} ${it.name} ${it.from || it.cluster}`, [
  { title: "Outcome", text: (it) => OUTCOMES[it.state][0], kind: (it) => OUTCOMES[it.state][1] },
  { title: "Workload", head: true, text: (it) => it.name },
  { title: "From", text: (it) => it.from || it.cluster },
  { title: "To, or why not", long: true, text: (it) => it.reason || [].concat(it.to).map((to) => to.name || String(to)).join(", ") },
  { title: "After", text: (it) => (it.afterSeconds === undefined ? "–" : span(it.afterSeconds)) },
], "no workload is concerned");
function whatIf(name) {
  byId("whatif-names").value = name;
  document.querySelector("input[name=how][value=lost]").checked = true;
  foretell();
}
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
byId("whatif-form").addEventListener("submit", (event) => {
  event.preventDefault();
  foretell();
});

// Looking.

async function ask(path) {
  const asked = performance.now();
  let response;
  try {
    response = await fetch(`api/${path}`, { signal: AbortSignal.timeout(PATIENCE) });
  } catch {
    throw new Error("kubectl muster ui does not answer: has it been stopped?");
  }
  const said = await response.json();
  if (!response.ok) throw new Error(said.error);
  const date = Date.parse(response.headers.get("Date"));
  if (Math.abs(date - Date.now()) > 2000) skew = date - Date.now();
  const age = 1000 * Number(response.headers.get("Age"));
  return { said, code: Number(response.headers.get("Muster-Exit-Code")), read: asked - age };
}

let seen; // by performance.now(): how old what is shown is at most
let faults = [];
let isLost = false; // whether the last look at the state of the fleet failed
async function look() {
  const found = [];
  let oldest = Infinity;
  const part = async (path, show) => {
    try {
      const { said, code, read } = await ask(path);
      show(said, code, now() - (performance.now() - read));
      oldest = Math.min(oldest, read);
      return true;
    } catch (fault) {
      found.push(fault.message);
      return false;
    }
  };
  const status = await part("status", (said, code, read) => {
    showStatus(said, code, read);
    if (code === 2) found.push(...said.unread);
  });
  const rows = await part("clusters", (said) => clusters.set(said.sort((a, b) => health(a)[2] - health(b)[2] || (a.name < b.name ? -1 : 1))));
  isLost = !status;
  if (status && rows) seen = oldest;
  const error = byId("history-error");
  try {
    const { said } = await ask("history");
    past.set(said);
    const same = said.find((it) => it.metadata.name === told);
    if (same) tell(same, false);
    error.hidden = true;
  } catch (fault) {
    say(error, `✖ ${fault.message}`);
    error.hidden = false;
  }
  faults = [...new Set(found)];
  tick();
}
function tick() {
  const age = seen === undefined ? undefined : (performance.now() - seen) / 1000;
  say(byId("read"), age === undefined ? "not read yet" : `last updated ${span(age)} ago`);
  const old = age !== undefined && age > OLD;
  const words = [];
  if (faults.length) words.push("✖ THE FLEET CANNOT BE READ", ...faults.slice(0, 5));
  if (old) words.push(`✖ WHAT IS SHOWN IS OLD: it was read ${span(age)} ago`);
  if (age === undefined ? words.length : isLost || old) {
    say(byId("verdict"), age === undefined ? "✖ Nothing could be read" : "? Not known now: what is shown is the last that could be read");
    byId("verdict").className = "bad";
  }
  byId("banner").hidden = !words.length;
  say(byId("banner"), words.join("\n"));
  document.body.classList.toggle("old", words.length > 0);
  for (const table of tables) table.tick();
}
async function watch() {
  for (;;) {
    if (!document.hidden || seen === undefined) await look().catch((error) => (faults = [String(error)]));
    await new Promise((resume) => setTimeout(resume, PAUSE));
  }
}
setInterval(tick, 1000);
document.addEventListener("visibilitychange", () => document.hidden || tick());
watch();
