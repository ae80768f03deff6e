// @ts-check
// The pages besides the inbox: sessions, nodes, policy, audit, settings, health.

import { el, swap } from "./live.js";

/** @typedef {any} Page */

/** @param {string} id @returns {any} */
const by = (id) => document.getElementById(id);

/** Asks in words before something that cannot be taken back. @param {string} text @param {string} yes @param {...any} more
 * @returns {Promise<boolean>} */
export function sure(text, yes = "Yes", ...more) {
  return new Promise((resolve) => {
    const dialog = el("dialog", { "aria-label": text },
      el("p", {}, text), ...more,
      el("p", { class: "actions" },
        el("button", { class: "button quiet", onclick: () => dialog.close("no") }, "Cancel"),
        el("button", { class: "button primary", onclick: () => dialog.close("yes") }, yes)));
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "yes");
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** Asks for one line of text. @param {string} text @param {string} value @returns {Promise<string|null>} */
function ask(text, value) {
  const field = el("input", { type: "text", value, "aria-label": text });
  const answer = sure(text, "Save", el("p", {}, field));
  field.select();
  return answer.then((yes) => (yes ? field.value.trim() : null));
}

/** @type {any} */ let here = null;

/** @param {Page} page @param {any} opened @param {any} wanted */
export function opened(page, opened, wanted) {
  here = { page, wanted };
  const pages = { session, nodes, policy, audit, settings };
  /** @type {any} */ (pages)[wanted.view]?.(page, wanted);
  for (const button of page.main.querySelectorAll("[data-call]")) {
    button.addEventListener("click", () => call(page, button));
  }
}

/** A button that is one call of the protocol. @param {Page} page @param {HTMLElement} button */
async function call(page, button) {
  const { call: method = "", id, sure: question } = button.dataset;
  if (question && !(await sure(question))) return;
  const names = { "device.pair.remove": "deviceId", "node.pair.remove": "nodeId" };
  const name = /** @type {any} */ (names)[method] ?? "requestId";
  try {
    await page.live.call(method, { [name]: id });
    page.open();
  } catch (error) {
    page.fail(error, button.closest(".entry"));
  }
}

/** @param {Page} page @param {any} patch */
export function patch(page, patch) {
  for (const { op, id, html } of patch.ops) {
    const target = by(id);
    if (op === "remove" && id === "typing") {
      page.open();
      return;
    }
    if (!target) continue;
    if (op === "replace") {
      const output = target.closest("#output");
      const isAtEnd = output && output.scrollHeight - output.scrollTop - output.clientHeight < 40;
      target.replaceWith(page.fragment(html));
      if (isAtEnd) output.scrollTop = output.scrollHeight;
    } else if (op === "remove") target.remove();
  }
}

/** @type {any} */ let soon;
const RELOADS = {
  sessions: ["session.event", "sessions.changed"],
  nodes: ["device.pair.requested", "device.pair.resolved", "node.pair.requested", "node.pair.resolved", "presence"],
  health: ["presence", "health"],
};

/** @param {Page} page @param {any} frame @param {any} current */
export function event(page, frame, current) {
  if (!/** @type {any} */ (RELOADS)[current.view]?.includes(frame.event) || page.isDirty?.()) return;
  if (document.querySelector("dialog[open]") || page.main.contains(document.activeElement) && /^(input|select|textarea)$/i.test(document.activeElement?.tagName ?? "")) return;
  clearTimeout(soon);
  soon = setTimeout(() => here?.wanted.view === current.view && !page.isDirty?.() && page.open(current.params), 300);
}

setInterval(() => {
  const view = here?.page.main.dataset.view;
  const isElsewhere = view === "session" && here.wanted.params.id.includes("@") && Boolean(by("typing"));
  const isTyping = by("typing")?.contains(document.activeElement) || document.querySelector("dialog[open]");
  if ((view === "sessions" || (isElsewhere && !isTyping)) && !document.hidden && here.page.live.isOpen) here.page.open();
}, 3000);

// Sessions.

const KEYS = {
  Enter: "Enter", Tab: "Tab", Escape: "Escape", Backspace: "BSpace", Delete: "DC", ArrowUp: "Up", ArrowDown: "Down",
  ArrowLeft: "Left", ArrowRight: "Right", Home: "Home", End: "End", PageUp: "PPage", PageDown: "NPage",
};

/** @param {Page} page @param {any} wanted */
function session(page, wanted) {
  const sessionId = wanted.params.id;
  const perform = (/** @type {any} */ args) => page.live.call("process.perform", { args: { ...args, sessionId } }).catch((/** @type {any} */ error) => page.fail(error, by("typing") ?? page.main));
  const screen = by("screen");
  const output = by("output");
  if (output) output.scrollTop = output.scrollHeight;
  if (screen?.dataset.live === "true") {
    let queue = Promise.resolve();
    const send = (/** @type {any} */ args) => (queue = queue.then(() => perform(args)));
    screen.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
      if (event.metaKey || event.isComposing) return;
      const named = /** @type {any} */ (KEYS)[event.key];
      // Shift and Tab leave the terminal, so that the keyboard is not caught in it.
      if (event.key === "Tab" && event.shiftKey) return;
      if (event.ctrlKey && event.key.length === 1) {
        if (event.key === "v" || event.key === "V" || (event.key === "c" && getSelection()?.toString())) return;
        send({ action: "send-keys", keys: [`C-${event.key.toLowerCase()}`] });
      } else if (named) send({ action: "send-keys", keys: [named] });
      else if (event.key.length === 1 && !event.altKey) send({ action: "send-keys", literal: event.key });
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
    screen.addEventListener("paste", async (/** @type {ClipboardEvent} */ event) => {
      event.preventDefault();
      const text = event.clipboardData?.getData("text/plain") ?? "";
      const lines = text.split("\n").length - 1;
      if (text && (!lines || (await sure(`Paste ${lines + 1} lines? Each line break may run a command.`, "Paste")))) send({ action: "paste", text });
    });
    for (const button of page.main.querySelectorAll("[data-key]")) {
      button.addEventListener("click", () => send({ action: "send-keys", keys: [/** @type {HTMLElement} */ (button).dataset.key] }));
    }
    by("typed")?.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
      if (event.key !== "Enter") return;
      send({ action: "send-keys", ...(by("typed").value ? { literal: by("typed").value } : {}), keys: ["Enter"] });
      by("typed").value = "";
    });
    screen.focus({ preventScroll: true });
  }
  by("stdin")?.addEventListener("keydown", async (/** @type {KeyboardEvent} */ event) => {
    if (event.key !== "Enter") return;
    const field = by("stdin");
    await page.live.call("process.write", { sessionId, data: `${field.value}\n` }).catch((/** @type {any} */ error) => page.fail(error, by("typing")));
    field.value = "";
  });
  by("kill")?.addEventListener("click", async () => {
    if (!(await sure("End this session and everything that it started?", "End it"))) return;
    await page.live.call("process.kill", { sessionId }).catch((/** @type {any} */ error) => page.fail(error, by("typing")));
    page.open();
  });
  by("find")?.addEventListener("keydown", async (/** @type {KeyboardEvent} */ event) => {
    if (event.key !== "Enter") return;
    const text = await whole(page, sessionId);
    const wantedText = by("find").value.toLowerCase();
    const hits = text.split("\n").map((line, at) => [at + 1, line]).filter(([, line]) => wantedText && String(line).toLowerCase().includes(wantedText));
    by("hits").textContent = `${hits.length} lines`;
    by("log").hidden = hits.length === 0;
    by("log").textContent = hits.slice(0, 500).map(([at, line]) => `${at}: ${printable(String(line))}`).join("\n");
  });
  by("download")?.addEventListener("click", async () => {
    const url = URL.createObjectURL(new Blob([await whole(page, sessionId)], { type: "application/octet-stream" }));
    const link = el("a", { href: url, download: `${sessionId.replace(/[^\w.-]/g, "_")}.log` });
    link.click();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
  });
}

/** Control characters are shown, never followed. @param {string} text */
const printable = (text) => text.replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g, (c) => `\\u{${c.charCodeAt(0).toString(16).toUpperCase()}}`);

/** All lines of the transcript. @param {Page} page @param {string} sessionId */
async function whole(page, sessionId) {
  let text = "";
  let offset = 0;
  for (let pages = 0; pages < 200; pages += 1) {
    const answer = await page.live.call("process.log", { sessionId, offset, limit: 5000 });
    text += answer.text.endsWith("\n") || !answer.text ? answer.text : `${answer.text}\n`;
    if (answer.nextOffset === null || answer.nextOffset === undefined) break;
    offset = answer.nextOffset;
  }
  return text;
}

// Nodes: which machine runs for which agent, and the approvals documents.

/** @param {Page} page */
function nodes(page) {
  /** @type {(() => boolean)[]} */ const unsaved = (page.unsaved = []);
  page.isDirty = () => unsaved.some((isDirty) => isDirty());
  for (const button of page.main.querySelectorAll("[data-rename]")) {
    button.addEventListener("click", async () => {
      const { rename, name } = /** @type {HTMLElement} */ (button).dataset;
      const displayName = await ask("The name of this machine", name ?? "");
      if (!displayName) return;
      await page.live.call("node.rename", { nodeId: rename, displayName }).catch((/** @type {any} */ error) => page.fail(error, button.closest(".entry")));
      page.open();
    });
  }
  if (by("binding")) binding(page).catch((error) => page.fail(error, by("binding")));
  if (by("approvals")) new Approvals(page).start();
}

/** @param {Page} page */
async function binding(page) {
  const place = by("binding");
  const [config, agents, listing] = await Promise.all([page.live.call("config.get"), page.live.call("agents.list"), page.live.call("node.list", {})]);
  const inForce = config.config ?? {};
  const list = inForce.agents?.list ?? [];
  const names = new Map(listing.nodes.map((/** @type {any} */ node) => [node.nodeId, node.displayName ?? node.nodeId.slice(0, 12)]));
  /** @param {string} label @param {string|undefined} value @param {string} none */
  const choice = (label, value, none) => {
    const options = [el("option", { value: "" }, none)];
    for (const [id, name] of names) options.push(el("option", { value: id, selected: value === id || value === name }, name));
    if (value && !names.has(value) && ![...names.values()].includes(value)) options.push(el("option", { value, selected: true }, `${value} (unknown)`));
    const field = el("select", { "data-was": value ?? "", "aria-label": label }, ...options);
    return [el("label", { class: "field" }, el("span", {}, label), field), field];
  };
  const [globalLabel, globalField] = choice("default", inForce.tools?.exec?.node, "any machine");
  const rows = agents.agents.map((/** @type {any} */ agent) => {
    const own = list.find((/** @type {any} */ one) => one.id === agent.id);
    return [agent.id, ...choice(agent.id, own?.tools?.exec?.node, "as the default")];
  });
  const save = el("button", { class: "button primary", disabled: true }, "Save");
  const fields = [globalField, ...rows.map((/** @type {any} */ row) => row[2])];
  const changed = () => fields.filter((field) => field.value !== field.dataset.was);
  page.unsaved?.push(() => changed().length > 0 && save.isConnected);
  for (const field of fields) field.addEventListener("change", () => (save.disabled = changed().length === 0));
  save.addEventListener("click", async () => {
    save.disabled = true;
    /** @type {any} */ const change = {};
    if (globalField.value !== globalField.dataset.was) change.tools = { exec: { node: globalField.value || null } };
    const edited = rows.filter((/** @type {any} */ [, , field]) => field.value !== field.dataset.was);
    if (edited.length) {
      const next = structuredClone(list);
      for (const [id, , field] of edited) {
        let own = next.find((/** @type {any} */ one) => one.id === id);
        if (!own) next.push((own = { id }));
        own.tools = { ...own.tools, exec: { ...own.tools?.exec, node: field.value || undefined } };
      }
      change.agents = { list: next };
    }
    try {
      await page.live.call("config.patch", { raw: JSON.stringify(change), baseHash: config.hash ?? undefined });
      page.say("Saved.");
      binding(page);
    } catch (error) {
      save.disabled = false;
      page.fail(error, place.querySelector(".list"));
    }
  });
  place.removeAttribute("aria-busy");
  place.replaceChildren(el("header", {}, el("h2", { class: "grow" }, "Exec node binding"), save),
    el("div", { class: "list pad" }, el("div", { class: "grid" }, globalLabel, ...rows.map((/** @type {any} */ row) => row[1]))));
}

const LEVELS = { security: ["deny", "allowlist", "full"], ask: ["off", "on-miss", "always"], askFallback: ["deny", "allowlist", "full"] };
const STRICT = { security: ["deny", "allowlist", "full"], ask: ["always", "on-miss", "off"], askFallback: ["deny", "allowlist", "full"] };

/** The editor of an approvals document: a copy is changed, and saved only onto what it was made from. */
class Approvals {
  /** @param {Page} page */
  constructor(page) {
    this.page = page;
    this.place = by("approvals");
    this.target = "";
    this.scope = "defaults";
  }

  async start() {
    const listing = await this.page.live.call("node.list", {}).catch(() => ({ nodes: [] }));
    this.nodes = listing.nodes.filter((/** @type {any} */ node) => node.paired);
    this.page.unsaved?.push(() => this.isDirty() && this.place.isConnected);
    await this.load();
  }

  async load() {
    try {
      const node = this.target;
      const method = node ? "exec.approvals.node.get" : "exec.approvals.get";
      const read = await this.page.live.call(method, node ? { nodeId: node } : {});
      this.take(read);
      this.problem = "";
    } catch (error) {
      this.base = null;
      this.problem = `${error.message} (${error.code}). This machine's document can only be read and changed on the machine itself.`;
    }
    this.draw();
  }

  /** @param {any} read */
  take(read) {
    this.hash = read.hash;
    this.base = read.file;
    this.mine = structuredClone(read.file);
  }

  isDirty() {
    return Boolean(this.base) && this.count() > 0;
  }

  /** How many things differ. */
  count() {
    return differences(this.base, this.mine).length;
  }

  /** The part of the document that the chosen scope is. @param {any} file */
  part(file) {
    if (this.scope === "defaults") return (file.defaults ??= {});
    file.agents ??= {};
    return (file.agents[this.scope] ??= {});
  }

  draw() {
    const { place, page } = this;
    const targets = el("select", { "aria-label": "Machine" }, el("option", { value: "" }, "Gateway"),
      ...this.nodes.map((/** @type {any} */ node) => el("option", { value: node.nodeId, selected: node.nodeId === this.target }, node.displayName ?? node.nodeId.slice(0, 12))));
    targets.addEventListener("change", async () => {
      if (this.isDirty() && !(await sure("Leave this document without saving?", "Leave"))) return this.draw();
      this.target = targets.value;
      this.scope = "defaults";
      this.load();
    });
    const head = el("header", {}, el("h2", { class: "grow" }, "Exec approvals"), targets);
    place.removeAttribute("aria-busy");
    if (!this.base) return place.replaceChildren(head, el("div", { class: "list pad" }, el("p", { class: "problem" }, this.problem)));
    const scopes = ["defaults", "*", ...Object.keys(this.mine.agents ?? {}).filter((name) => name !== "*").sort()];
    const chips = el("div", { class: "chips", role: "group", "aria-label": "Scope" }, ...scopes.map((scope) =>
      el("button", { class: "chip", "aria-pressed": String(scope === this.scope), onclick: () => { this.scope = scope; this.draw(); } }, scope === "defaults" ? "Defaults" : scope === "*" ? "Every agent" : scope)));
    const part = this.part(this.mine);
    const levels = Object.entries(LEVELS).map(([name, words]) => {
      const field = el("select", { id: `level-${name}`, "aria-label": name }, el("option", { value: "" }, this.scope === "defaults" ? "not set" : `default: ${this.mine.defaults?.[name] ?? "not set"}`),
        ...words.map((word) => el("option", { value: word, selected: part[name] === word }, word)));
      field.addEventListener("change", () => {
        if (field.value) part[name] = field.value;
        else delete part[name];
        this.draw();
      });
      return el("label", { class: "field" }, el("span", {}, name), field);
    });
    const skills = el("input", { type: "checkbox", checked: part.autoAllowSkills === true });
    skills.addEventListener("change", () => {
      if (skills.checked) part.autoAllowSkills = true;
      else delete part.autoAllowSkills;
      this.draw();
    });
    const entries = part.allowlist ?? [];
    const rows = entries.map((/** @type {any} */ entry, /** @type {number} */ at) => el("li", { class: "entry" },
      el("span", { class: "grow" }, el("code", {}, printable(describe(entry))),
        el("span", { class: "sub" }, printable(used(entry)))),
      el("button", { class: "button small quiet", "aria-label": `Remove ${printable(entry.pattern ?? "")}`, onclick: () => { entries.splice(at, 1); this.draw(); } }, "Remove")));
    const pattern = el("input", { type: "text", class: "grow mono", id: "new-pattern", placeholder: "/usr/bin/rg, or a pattern with * and **", "aria-label": "New pattern", autocomplete: "off", spellcheck: "false" });
    const add = () => {
      if (!pattern.value.trim()) return;
      part.allowlist = [...entries, { pattern: pattern.value.trim() }];
      this.draw();
      by("new-pattern")?.focus();
    };
    pattern.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => event.key === "Enter" && add());
    const many = this.count();
    const bar = el("div", { class: "batchbar", id: "document-bar", hidden: many === 0 },
      el("span", { class: "grow" }, `${many} unsaved`),
      el("button", { class: "button quiet", onclick: () => { this.mine = structuredClone(this.base); this.draw(); } }, "Revert"),
      el("button", { class: "button primary", id: "document-save", onclick: () => this.save() }, "Save"));
    const list = this.scope === "defaults" ? [] : [
      el("ul", {}, ...rows),
      el("div", { class: "pad line" }, pattern, el("button", { class: "button", onclick: add }, "Add"))];
    place.replaceChildren(head,
      el("div", { class: "list" },
        el("div", { class: "pad" }, el("div", { class: "line" }, chips, el("span", { class: "grow" }), el("code", { class: "faint small", id: "document-hash" }, (this.hash ?? "").slice(0, 12)))),
        el("div", { class: "pad" }, el("div", { class: "grid" }, ...levels, el("label", { class: "field" }, skills, "auto-allow skills"))),
        ...list),
      bar);
    if (this.problem) page.fail({ message: this.problem }, bar.hidden ? place : bar);
  }

  async save() {
    const looser = loosened(this.base, this.mine);
    const where = this.target ? (this.nodes.find((/** @type {any} */ node) => node.nodeId === this.target)?.displayName ?? this.target) : "the gateway";
    if (looser.length && !(await sure(`This allows more on ${where}:`, "Save", el("ul", {}, ...looser.map((text) => el("li", {}, printable(text))))))) return;
    for (const field of this.place.querySelectorAll("input, select, button")) field.disabled = true;
    const node = this.target;
    const method = node ? "exec.approvals.node.set" : "exec.approvals.set";
    try {
      const written = await this.page.live.call(method, { ...(node ? { nodeId: node } : {}), file: this.mine, baseHash: this.hash });
      this.take(written);
      this.problem = "";
      this.page.say("Saved.");
      this.draw();
    } catch (error) {
      const text = `${error.message}`;
      if (/changed/i.test(text) || /CONFLICT|CHANGED/.test(error.code ?? "")) return this.conflict();
      this.problem = `Not saved: ${text} (${error.code})`;
      this.draw();
    }
  }

  /** Another editor was faster: base, theirs and mine, merged entry by entry. */
  async conflict() {
    const node = this.target;
    const theirs = await this.page.live.call(node ? "exec.approvals.node.get" : "exec.approvals.get", node ? { nodeId: node } : {}).catch(() => null);
    if (!theirs) {
      this.problem = "Not saved: the document changed meanwhile, and cannot be read now.";
      return this.draw();
    }
    const { merged, clashes } = merge(this.base, theirs.file, this.mine);
    const row = (/** @type {string} */ title, /** @type {string[]} */ lines) => el("div", { class: "field" }, el("span", {}, title), el("pre", { class: "text small" }, lines.map(printable).join("\n") || "nothing"));
    const yes = await sure(
      clashes.length ? "Not saved. The document changed meanwhile, and you both changed the same. Yours are kept where they clash." : "Not saved. The document changed meanwhile. Both changes fit together.",
      "Use the merged document",
      el("div", { class: "grid", id: "three-way" }, row("theirs, since you began", differences(this.base, theirs.file)), row("yours", differences(this.base, this.mine)), row("clashes", clashes)));
    this.hash = theirs.hash;
    this.base = theirs.file;
    if (yes) {
      this.mine = merged;
      this.problem = "Not saved yet: look at the merged document, and save it.";
    } else this.problem = "Not saved. Your changes are still here.";
    this.draw();
  }
}

/** @param {any} entry */
function describe(entry) {
  const parts = [entry.pattern ?? ""];
  if (Array.isArray(entry.args)) parts.push(entry.args.length ? entry.args.join(" ") : "(no arguments)");
  else if (entry.argPattern?.startsWith("sha256:")) parts.push("with exact arguments, in one directory");
  else if (entry.argPattern) parts.push(`arguments like ${entry.argPattern}`);
  if (entry.cwd) parts.push(`in ${entry.cwd}`);
  return parts.join(" ");
}

/** @param {any} entry */
function used(entry) {
  const parts = [];
  parts.push(entry.lastUsedAt ? `used ${new Date(entry.lastUsedAt).toLocaleString()}` : "never used");
  if (entry.lastUsedCommand) parts.push(entry.lastUsedCommand);
  if (entry.lastResolvedPath) parts.push(`→ ${entry.lastResolvedPath}`);
  if (entry.source) parts.push(entry.source);
  if (entry.note) parts.push(entry.note);
  return parts.join(" · ");
}

/** An entry without what only says how it was used. @param {any} entry */
const identity = (entry) => {
  const { lastUsedAt, lastUsedCommand, lastResolvedPath, ...rest } = entry ?? {};
  return JSON.stringify(rest, Object.keys(rest).sort());
};

/** @param {any} file */
const scopesOf = (file) => ["defaults", ...Object.keys(file?.agents ?? {})];
/** @param {any} file @param {string} scope */
const partOf = (file, scope) => (scope === "defaults" ? file?.defaults : file?.agents?.[scope]) ?? {};

/** What one document has that the other has not, in words. @param {any} from @param {any} to @returns {string[]} */
function differences(from, to) {
  const out = [];
  for (const scope of new Set([...scopesOf(from), ...scopesOf(to)])) {
    const [old, now] = [partOf(from, scope), partOf(to, scope)];
    for (const name of [...Object.keys(LEVELS), "autoAllowSkills"]) {
      if (old[name] !== now[name]) out.push(`${scope}: ${name} ${old[name] ?? "not set"} → ${now[name] ?? "not set"}`);
    }
    const before = new Set((old.allowlist ?? []).map(identity));
    const after = new Set((now.allowlist ?? []).map(identity));
    for (const entry of now.allowlist ?? []) if (!before.has(identity(entry))) out.push(`${scope}: + ${describe(entry)}`);
    for (const entry of old.allowlist ?? []) if (!after.has(identity(entry))) out.push(`${scope}: − ${describe(entry)}`);
  }
  return out;
}

/** What of the changes allows more. @param {any} from @param {any} to */
function loosened(from, to) {
  const out = [];
  for (const scope of scopesOf(to)) {
    const [old, now] = [partOf(from, scope), partOf(to, scope)];
    for (const [name, order] of Object.entries(STRICT)) {
      if (old[name] === now[name]) continue;
      const rank = (/** @type {any} */ value) => (value === undefined ? order.length : order.indexOf(value));
      if (rank(now[name]) > rank(old[name])) out.push(`${scope}: ${name} ${old[name] ?? "not set"} → ${now[name] ?? "not set"}`);
    }
    if (now.autoAllowSkills && !old.autoAllowSkills) out.push(`${scope}: programs of skills are allowed`);
    const before = new Set((old.allowlist ?? []).map(identity));
    for (const entry of now.allowlist ?? []) if (!before.has(identity(entry))) out.push(`${scope}: ${describe(entry)} runs without asking`);
  }
  return out;
}

/** Their document with my changes on it. @param {any} base @param {any} theirs @param {any} mine */
function merge(base, theirs, mine) {
  const merged = structuredClone(theirs);
  const clashes = [];
  for (const scope of new Set([...scopesOf(base), ...scopesOf(mine)])) {
    const [old, other, own] = [partOf(base, scope), partOf(theirs, scope), partOf(mine, scope)];
    const target = scope === "defaults" ? (merged.defaults ??= {}) : ((merged.agents ??= {})[scope] ??= {});
    for (const name of [...Object.keys(LEVELS), "autoAllowSkills"]) {
      if (own[name] === old[name]) continue;
      if (other[name] !== old[name] && other[name] !== own[name]) clashes.push(`${scope}: ${name} is ${other[name] ?? "not set"} there, ${own[name] ?? "not set"} here`);
      if (own[name] === undefined) delete target[name];
      else target[name] = own[name];
    }
    const before = new Set((old.allowlist ?? []).map(identity));
    const wanted = new Set((own.allowlist ?? []).map(identity));
    const added = (own.allowlist ?? []).filter((/** @type {any} */ entry) => !before.has(identity(entry)));
    const removed = new Set([...before].filter((one) => !wanted.has(one)));
    if (added.length || removed.size) {
      const kept = (target.allowlist ?? []).filter((/** @type {any} */ entry) => !removed.has(identity(entry)));
      const there = new Set(kept.map(identity));
      target.allowlist = [...kept, ...added.filter((/** @type {any} */ entry) => !there.has(identity(entry)))];
    }
  }
  return { merged, clashes };
}

// Policy.

/** @param {Page} page @param {any} wanted */
function policy(page, wanted) {
  by("command").value = wanted.params.command ?? "";
  const explain = () => page.open({ command: by("command").value, agent: by("agent").value, node: by("node").value || undefined });
  by("explain").addEventListener("click", explain);
  by("command").addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => event.key === "Enter" && explain());
  by("agent").addEventListener("change", explain);
  by("node").addEventListener("change", () => by("command").value && explain());
  if (by("cases")) by("cases").value = wanted.params.cases ?? "";
  by("run-cases")?.addEventListener("click", () => page.open({ command: by("command").value || undefined, agent: by("agent").value, cases: by("cases").value || undefined }));
  if (!wanted.params.command && !wanted.params.cases) by("command").focus({ preventScroll: true });
}

// Audit.

/** @param {Page} page */
function audit(page) {
  const search = (/** @type {any} */ more = {}) => page.open({ kind: by("kind").value || undefined, agent: by("agent").value || undefined, text: by("text").value || undefined, ...more });
  by("kind").addEventListener("change", () => search());
  by("agent").addEventListener("change", () => search());
  by("text").addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => event.key === "Enter" && search());
  by("older")?.addEventListener("click", () => search({ cursor: by("older").dataset.cursor }));
  by("verify").addEventListener("click", async () => {
    by("verified").textContent = "verifying…";
    try {
      const report = await page.live.call("audit.verify", {});
      by("verified").className = report.intact ? "small good" : "small bad";
      by("verified").textContent = report.intact ? `intact, head ${report.head.slice(0, 18)}` : `broken at record ${report.seq}: ${report.problem}`;
    } catch (error) {
      by("verified").className = "small bad";
      by("verified").textContent = error.message;
    }
  });
  by("export").addEventListener("click", async () => {
    const lines = [];
    let cursor;
    do {
      const found = await page.live.call("audit.list", { limit: 500, ...(cursor ? { cursor } : {}), ...(by("kind").value ? { kind: by("kind").value } : {}), ...(by("agent").value ? { agentId: by("agent").value } : {}) });
      for (const record of found.events) lines.push(JSON.stringify(record));
      cursor = found.nextCursor;
    } while (cursor);
    const head = await page.live.call("audit.head", {});
    lines.push(JSON.stringify({ head: head.head }));
    const url = URL.createObjectURL(new Blob([`${lines.join("\n")}\n`], { type: "application/octet-stream" }));
    el("a", { href: url, download: "interlock-audit.jsonl" }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
  });
}

// Settings.

/** @param {Page} page */
async function settings(page) {
  if (!by("form")) return;
  let config = await page.live.call("config.get");
  const { schema } = await page.live.call("config.schema");
  const raw = by("raw");
  raw.value = config.raw ?? "{}\n";
  /** @type {Map<string, any>} */ const changes = new Map();
  let isText = false;
  const isDirty = () => (isText ? raw.value !== (config.raw ?? "{}\n") : changes.size > 0);
  page.isDirty = isDirty;
  const refresh = () => {
    by("savebar").hidden = !isDirty();
    by("unsaved").textContent = isText ? "Unsaved text" : `${changes.size} unsaved`;
  };
  const mode = (/** @type {boolean} */ text) => {
    isText = text;
    by("form").hidden = text;
    by("text").hidden = !text;
    by("as-form").setAttribute("aria-pressed", String(!text));
    by("as-text").setAttribute("aria-pressed", String(text));
    refresh();
  };
  by("as-form").addEventListener("click", () => mode(false));
  by("as-text").addEventListener("click", () => mode(true));
  raw.addEventListener("input", refresh);
  const draw = () => form(schema, config.config ?? {}, changes, refresh);
  by("form").removeAttribute("aria-busy");
  by("form").replaceChildren(draw());
  refresh();
  by("revert").addEventListener("click", () => {
    changes.clear();
    raw.value = config.raw ?? "{}\n";
    by("issues").replaceChildren();
    by("form").replaceChildren(draw());
    refresh();
  });
  by("save").addEventListener("click", async () => {
    by("issues").replaceChildren();
    by("save").disabled = true;
    try {
      const baseHash = config.hash ?? undefined;
      const written = isText
        ? await page.live.call("config.set", { raw: raw.value, baseHash })
        : await page.live.call("config.patch", { raw: JSON.stringify(nested(changes)), baseHash });
      changes.clear();
      config = await page.live.call("config.get");
      raw.value = config.raw ?? "{}\n";
      by("form").replaceChildren(draw());
      page.say(written.restartRequired ? "Saved. Takes effect at the next start of the gateway." : "Saved.");
      refresh();
      if (written.restartRequired) page.fail({ message: "Saved. Takes effect at the next start of the gateway." }, by("form"));
    } catch (error) {
      const issues = error.details?.issues ?? [{ message: `${error.message}`, line: undefined }];
      by("issues").replaceChildren(...issues.map((/** @type {any} */ issue) => el("li", {}, `${issue.line ? `line ${issue.line}: ` : ""}${printable(issue.message)}`)));
      by("savebar").querySelector(".problem")?.remove();
      by("savebar").append(el("p", { class: "problem" }, `Not saved: ${printable(issues[0].message)}`));
    } finally {
      by("save").disabled = false;
    }
  });
}

/** Keys with dots become objects in objects. @param {Map<string, any>} changes */
function nested(changes) {
  /** @type {any} */ const out = {};
  for (const [path, value] of changes) {
    const keys = path.split(".");
    const last = /** @type {string} */ (keys.pop());
    let place = out;
    for (const key of keys) place = place[key] ??= {};
    place[last] = value;
  }
  return out;
}

/** A form of all plain keys, by group. @param {any} schema @param {any} config @param {Map<string, any>} changes @param {() => void} refresh */
function form(schema, config, changes, refresh) {
  const find = (/** @type {any} */ node) => (node?.$ref ? schema.$defs?.[node.$ref.split("/").pop()] ?? schema.definitions?.[node.$ref.split("/").pop()] : node);
  const groups = [];
  for (const [name, node] of Object.entries(find(schema).properties ?? {})) {
    /** @type {any[]} */ const fields = [];
    collect(name, find(node), config?.[name], fields);
    if (fields.length) groups.push(el("details", { class: "list", open: groups.length === 0 }, el("summary", { class: "pad" }, el("b", {}, name), el("span", { class: "faint small" }, `${fields.length} keys`)), el("div", { class: "pad grid" }, ...fields)));
  }
  /** @param {string} path @param {any} node @param {any} value @param {any[]} fields */
  function collect(path, node, value, fields) {
    if (!node) return;
    if (node.properties) {
      for (const [name, inner] of Object.entries(node.properties)) collect(`${path}.${name}`, find(inner), value?.[name], fields);
      return;
    }
    const words = node.enum;
    const kind = Array.isArray(node.type) ? node.type[0] : node.type;
    const note = node.description ?? "";
    const change = (/** @type {any} */ now) => {
      const same = JSON.stringify(now ?? null) === JSON.stringify(value ?? null);
      if (same) changes.delete(path);
      else changes.set(path, now ?? null);
      refresh();
    };
    let field;
    if (words) {
      field = el("select", {}, el("option", { value: "" }, `default${node.default !== undefined ? `: ${node.default}` : ""}`), ...words.map((/** @type {any} */ word) => el("option", { value: String(word), selected: value === word }, String(word))));
      field.addEventListener("change", () => change(field.value === "" ? undefined : words.find((/** @type {any} */ word) => String(word) === field.value)));
    } else if (kind === "boolean") {
      field = el("select", {}, ...[["", `default${node.default !== undefined ? `: ${node.default}` : ""}`], ["true", "true"], ["false", "false"]].map(([word, text]) => el("option", { value: word, selected: String(value ?? "") === word }, text)));
      field.addEventListener("change", () => change(field.value === "" ? undefined : field.value === "true"));
    } else if (kind === "integer" || kind === "number") {
      field = el("input", { type: "number", value: value ?? "", placeholder: node.default ?? "" });
      field.addEventListener("change", () => change(field.value === "" ? undefined : Number(field.value)));
    } else if (kind === "string") {
      field = el("input", { type: "text", value: value ?? "", placeholder: node.default ?? "", autocomplete: "off", spellcheck: "false" });
      field.addEventListener("change", () => change(field.value === "" ? undefined : field.value));
    } else if (kind === "array" && find(node.items)?.type === "string") {
      field = el("input", { type: "text", value: (value ?? []).join(", "), placeholder: "a, b", autocomplete: "off", spellcheck: "false" });
      field.addEventListener("change", () => change(field.value.trim() === "" ? undefined : field.value.split(",").map((/** @type {string} */ one) => one.trim()).filter(Boolean)));
    } else return;
    field.setAttribute("aria-label", path);
    fields.push(el("label", { class: "field", title: note }, el("span", {}, path), field));
  }
  return el("div", {}, ...groups);
}

export { swap };
