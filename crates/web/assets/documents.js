// @ts-check
// Which machine runs for which agent, and the editor of the approvals documents.

import { el } from "./live.js";
import { ask, by, printable, sure } from "./parts.js";

/** @typedef {any} Page */

/** @param {Page} page */
export function nodes(page) {
  /** @type {(() => boolean)[]} */ const unsaved = (page.unsaved = []);
  page.isDirty = () => unsaved.some((isDirty) => isDirty());
  renames(page, page.main);
  if (by("binding")) binding(page).catch((error) => page.fail(error, by("binding")));
  const approvals = by("approvals") && new Approvals(page);
  approvals?.start();
  // There is another machine to choose.
  page.renew = async () => {
    if (by("binding")) binding(page).catch((error) => page.fail(error, by("binding")));
    await approvals?.list();
    if (approvals?.base) approvals.draw();
  };
}

/** @param {Page} page @param {ParentNode} place */
export function renames(page, place) {
  for (const button of place.querySelectorAll("[data-rename]")) {
    button.addEventListener("click", async () => {
      const { rename, name } = /** @type {HTMLElement} */ (button).dataset;
      const displayName = await ask("The name of this machine", name ?? "");
      if (!displayName) return;
      await page.live.call("node.rename", { nodeId: rename, displayName }).catch((/** @type {any} */ error) => page.fail(error, button.closest(".entry")));
      page.relist();
    });
  }
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

/** The editor of an approvals document. It changes a copy, which can replace only its original. */
class Approvals {
  /** @param {Page} page */
  constructor(page) {
    this.page = page;
    this.place = by("approvals");
    this.target = "";
    this.scope = "defaults";
  }

  async list() {
    const listing = await this.page.live.call("node.list", {}).catch(() => ({ nodes: [] }));
    this.nodes = listing.nodes.filter((/** @type {any} */ node) => node.paired);
  }

  async start() {
    await this.list();
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
    this.gone = new Set(read.gone ?? []);
    this.hash = read.hash;
    this.base = read.file;
    this.mine = structuredClone(read.file);
  }

  isDirty() {
    return Boolean(this.base) && this.count() > 0;
  }

  /** Counts the differences. */
  count() {
    return differences(this.base, this.mine).length;
  }

  /** The document's part for the chosen scope. @param {any} file */
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
        el("span", { class: "sub" }, printable(used(entry)), this.gone.has(entry.id) && el("b", { class: "warn" }, ", file gone"))),
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
      el("div", { class: "pad line" }, pattern,
        // Only the gateway has a history.
        !this.target && el("button", { class: "button", id: "try-pattern", onclick: () => this.try(pattern.value.trim()) }, "Try"),
        el("button", { class: "button", onclick: add }, "Add"),
        el("span", { class: "muted small", id: "tried", role: "status" }))];
    place.replaceChildren(head,
      el("div", { class: "list" },
        el("div", { class: "pad" }, el("div", { class: "line" }, chips, el("span", { class: "grow" }), el("code", { class: "faint small", id: "document-hash" }, (this.hash ?? "").slice(0, 12)))),
        el("div", { class: "pad" }, el("div", { class: "grid" }, ...levels, el("label", { class: "check" }, skills, "auto-allow skills")), el("p", { class: "note", id: "in-force", role: "status" })),
        ...list),
      bar);
    if (this.problem) page.fail({ message: this.problem }, bar.hidden ? place : bar);
    this.showInForce();
  }

  /** Shows the result of document and config, as the machine joins them. */
  async showInForce() {
    const note = by("in-force");
    const agent = ["defaults", "*"].includes(this.scope) ? undefined : this.scope;
    const levels = await (this.target ? this.nodeLevels(agent) : this.ownLevels(agent)).catch(() => "");
    note.textContent = levels ? `In force for ${printable(agent ?? "the default agent")}: ${printable(levels)}` : "What is in force there is not known: the machine does not say it.";
  }

  /** @param {string|undefined} agentId */
  async nodeLevels(agentId) {
    const { policy } = await this.page.live.call("node.policy", { nodeId: this.target, ...(agentId ? { agentId } : {}) });
    return Object.keys(LEVELS).map((name) => policy[name].effective.value).join(" / ");
  }

  /** @param {string|undefined} agent */
  async ownLevels(agent) {
    const { html } = await this.page.live.call("ui.open", { view: "policy", params: { agent } });
    return this.page.fragment(html).getElementById("in-force")?.textContent ?? "";
  }

  /** Shows what else an entry would have allowed in 100 verdicts. @param {string} pattern */
  async try(pattern) {
    if (!pattern) return;
    const draft = structuredClone(this.mine);
    const part = this.part(draft);
    part.allowlist = [...(part.allowlist ?? []), { pattern }];
    const place = by("tried");
    place.textContent = "judging…";
    try {
      const [now, then] = await Promise.all([this.mine, draft].map((file) => this.page.live.call("policy.replay", { raw: JSON.stringify(file), limit: 100 })));
      const allowed = (/** @type {any} */ one) => one.promptsSaved + one.newlyAllowed;
      place.textContent = `allows ${Math.max(0, allowed(then) - allowed(now))} more of the last ${then.judged}`;
    } catch (error) {
      place.textContent = printable(`${error.message}`);
    }
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
      const text = `${error.message}`.replace(/^Error: /, "");
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

/** Equal texts for equal values, at any depth. @param {any} value @returns {string} */
function canonical(value) {
  if (Array.isArray(value)) return `[${value.map(canonical).join()}]`;
  if (!value || typeof value !== "object") return JSON.stringify(value) ?? "null";
  return `{${Object.keys(value).sort().map((key) => `${JSON.stringify(key)}:${canonical(value[key])}`).join()}}`;
}

/** An entry without its usage data. @param {any} entry */
const identity = (entry) => {
  const { lastUsedAt, lastUsedCommand, lastResolvedPath, ...rest } = entry ?? {};
  return canonical(rest);
};

/** @param {any} file */
const scopesOf = (file) => ["defaults", ...Object.keys(file?.agents ?? {})];
/** @param {any} file @param {string} scope */
const partOf = (file, scope) => (scope === "defaults" ? file?.defaults : file?.agents?.[scope]) ?? {};
/** The keys of these parts besides the allowlist. @param {...any} parts */
const keysOf = (...parts) => [...new Set(parts.flatMap((part) => Object.keys(part)))].filter((key) => key !== "allowlist");
/** @param {any} value */
const shown = (value) => (value === undefined ? "not set" : typeof value === "string" ? value : canonical(value));

/** Describes how one document differs from another. @param {any} from @param {any} to @returns {string[]} */
export function differences(from, to) {
  const out = [];
  for (const scope of new Set([...scopesOf(from), ...scopesOf(to)])) {
    const [old, now] = [partOf(from, scope), partOf(to, scope)];
    for (const name of keysOf(old, now)) {
      if (canonical(old[name]) !== canonical(now[name])) out.push(`${scope}: ${name} ${shown(old[name])} → ${shown(now[name])}`);
    }
    const before = new Set((old.allowlist ?? []).map(identity));
    const after = new Set((now.allowlist ?? []).map(identity));
    for (const entry of now.allowlist ?? []) if (!before.has(identity(entry))) out.push(`${scope}: + ${describe(entry)}`);
    for (const entry of old.allowlist ?? []) if (!after.has(identity(entry))) out.push(`${scope}: − ${describe(entry)}`);
  }
  return out;
}

/** The changes that allow more. @param {any} from @param {any} to */
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
export function merge(base, theirs, mine) {
  const merged = structuredClone(theirs);
  const clashes = [];
  for (const scope of new Set([...scopesOf(base), ...scopesOf(mine)])) {
    const [old, other, own] = [partOf(base, scope), partOf(theirs, scope), partOf(mine, scope)];
    const target = scope === "defaults" ? (merged.defaults ??= {}) : ((merged.agents ??= {})[scope] ??= {});
    for (const name of keysOf(old, own)) {
      const [before, there, here] = [old[name], other[name], own[name]].map(canonical);
      if (here === before) continue;
      if (there !== before && there !== here) clashes.push(`${scope}: ${name} is ${shown(other[name])} there, ${shown(own[name])} here`);
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
