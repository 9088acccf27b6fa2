// What writes the document: elements that are changed in place, and tables.
//
// All text of the fleet is set as text, never as markup.

import { timeless } from "./model.js";

const SHOWN = matchMedia("(max-width: 45rem)").matches ? 40 : 200; // rows of a table
const SVG = document.querySelector("svg").namespaceURI;

export const byId = (id) => document.getElementById(id);
export const say = (element, text) => {
  if (element.textContent !== text) element.textContent = text;
};
// Marks an element that said something else before, for a while.
const FADES = 4000; // milliseconds; page.css has them, too
const fading = new WeakMap();
export function mark(element, before) {
  if (!before || timeless(before) === timeless(element.textContent)) return;
  element.dataset.changed = "";
  clearTimeout(fading.get(element));
  fading.set(element, setTimeout(() => delete element.dataset.changed, FADES));
}
export const make = (name, text) => {
  const element = document.createElement(name);
  if (text !== undefined) element.textContent = text;
  return element;
};

// Makes the children of an element be what the list says: [name, attributes, text or list]. Elements
// stay as they are where they can, so that focus and a click that has begun stay with them; a link
// stays with its address.
export function patch(parent, list) {
  const focus = document.activeElement;
  patchChildren(parent, list.filter(Boolean));
  if (focus !== document.activeElement && document.contains(focus)) focus.focus({ preventScroll: true });
}
function patchChildren(parent, list) {
  for (const it of [...parent.childNodes]) if (it.nodeType === Node.TEXT_NODE) it.remove();
  list.forEach(([name, attributes = {}, inner], at) => {
    const now = parent.children[at];
    let node = fits(now, name, attributes) ? now : attributes.href && [...parent.children].slice(at).find((it) => fits(it, name, attributes));
    if (!node) node = name === "svg" || parent.namespaceURI === SVG ? document.createElementNS(SVG, name) : document.createElement(name);
    if (node !== now) parent.insertBefore(node, now || null);
    for (const { name } of [...node.attributes]) if (attributes[name] === undefined && name !== "data-changed") node.removeAttribute(name);
    for (const [name, value] of Object.entries(attributes)) {
      if (value !== undefined && node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
    }
    if (Array.isArray(inner)) patchChildren(node, inner.filter(Boolean));
    else say(node, inner === undefined ? "" : String(inner));
  });
  while (parent.children.length > list.length) parent.lastElementChild.remove();
}
const fits = (node, name, attributes) => node?.localName === name && node.getAttribute("href") === (attributes.href ?? null);

export function fillList(id, texts) {
  patch(byId(id), texts.map((text) => ["li", {}, text]));
}

// Tables: rows keep their elements from refresh to refresh, so that the focus stays where it is.

export const tables = [];
export class Rows {
  // columns: {title, text(row), kind?(row), href?(row), press?(row)}
  // few: rows that are shown unless somebody filters
  // whole: command that shows all, where the page is not given all
  constructor(name, key, columns, empty, few = SHOWN, whole) {
    Object.assign(this, { key, columns, empty, few, whole, items: [], all: undefined, rows: new Map() });
    this.filter = byId(`${name}-filter`);
    this.count = byId(`${name}-count`);
    this.rest = make("button");
    this.rest.type = "button";
    this.rest.addEventListener("click", () => {
      this.few = SHOWN;
      this.draw();
    });
    this.count.after(" ", this.rest);
    const table = byId(`${name}-table`);
    // A narrow page shows each row as a card; its elements stay what they are for who listens.
    const line = role(make("tr"), "row");
    for (const column of columns) {
      const head = role(make("th", column.title), "columnheader");
      head.scope = "col";
      line.append(head);
    }
    const head = role(make("thead"), "rowgroup");
    head.append(line);
    this.body = role(make("tbody"), "rowgroup");
    role(table, "table").append(head, this.body);
    this.filter.addEventListener("input", () => this.draw());
    tables.push(this);
  }

  // all: how many there are, if not all are given.
  set(items, all) {
    this.items = items;
    this.all = all;
    this.draw(this.isSet);
    this.isSet = true;
  }

  draw(isNews) {
    const wanted = this.filter.value.trim().toLowerCase().split(/\s+/).filter(Boolean);
    const text = (item) => this.columns.map((it) => (it.press ? "" : it.text(item))).join(" ").toLowerCase();
    const found = wanted.length
      ? this.items.filter((item) => {
          const all = text(item);
          return wanted.every((word) => all.includes(word));
        })
      : this.items;
    const shown = found.slice(0, wanted.length ? SHOWN : this.few);
    const more = found.length - shown.length;
    const all = Math.max(this.items.length, this.all || 0);
    const canShow = more > 0 && !wanted.length && this.few < SHOWN;
    const part = (few, many) => (few < many ? `first ${few} of ${many}` : `${many}`);
    const rest = canShow ? "" : all > this.items.length ? ` (all of them: ${this.whole})` : more ? " (filter to see others)" : "";
    const of = wanted.length ? `${part(shown.length, found.length)} match, of ${part(this.items.length, all)}` : shown.length < all ? part(shown.length, all) : `${all} in all`;
    say(this.count, this.items.length ? `${of}${rest}` : this.empty);
    say(this.rest, "Show more");
    this.rest.hidden = !canShow;
    this.filter.parentElement.hidden = !this.items.length;
    this.body.parentElement.hidden = !this.items.length;
    const focus = document.activeElement;
    const rows = new Map();
    shown.forEach((item, at) => {
      const key = this.key(item);
      const row = (!rows.has(key) && this.rows.get(key)) || this.row();
      rows.set(rows.has(key) ? `${key}\u0000${at}` : key, row);
      row.item = item;
      this.fill(row);
      if (isNews && !this.rows.has(key)) mark(row, "nothing");
      if (this.body.children[at] !== row) this.body.insertBefore(row, this.body.children[at] || null);
    });
    while (this.body.children.length > shown.length) this.body.lastChild.remove();
    this.rows = rows;
    if (focus !== document.activeElement && document.contains(focus)) focus.focus({ preventScroll: true });
  }

  row() {
    const row = role(make("tr"), "row");
    for (const column of this.columns) {
      const cell = role(make(column.head ? "th" : "td"), column.head ? "rowheader" : "cell");
      if (column.head) cell.scope = "row";
      cell.dataset.title = column.title;
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
      const before = cell.textContent;
      const href = column.href?.(row.item);
      if (href) patch(cell, [["a", { href }, column.text(row.item)]]);
      else say(cell, column.text(row.item));
      mark(cell, before);
      const kind = column.kind ? `state ${column.kind(row.item)}` : column.long ? "text" : "";
      if (cell.className !== kind) cell.className = kind;
    });
  }

  // Times go on between two refreshes.
  tick() {
    for (const row of this.body.children) this.fill(row);
  }
}
function role(element, name) {
  element.setAttribute("role", name);
  return element;
}
