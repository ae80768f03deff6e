// @ts-check
// The pages besides the inbox: sessions, nodes, policy, audit, sandbox, settings, health.

import { nodes, renames } from "./documents.js";
import { Draft } from "./draft.js";
import { el, isField } from "./live.js";
import { by, printable, sure } from "./parts.js";
import { phones } from "./push.js";
import { settings } from "./settings.js";

/** @typedef {any} Page */

/** @type {any} */ let here = null;

/** @param {Page} page @param {any} opened @param {any} wanted */
export function opened(page, opened, wanted) {
  here = { page, wanted };
  // Only the lists are read again, so unsaved changes stay.
  page.relist = () => (wanted.view === "nodes" ? relist(page, wanted) : page.open());
  const pages = { session, nodes, policy, audit, sandbox, settings };
  /** @type {any} */ (pages)[wanted.view]?.(page, wanted);
  if (by("phones")) phones(page);
  calls(page, page.main);
}

/** @param {Page} page @param {ParentNode} place */
function calls(page, place) {
  for (const button of /** @type {NodeListOf<HTMLElement>} */ (place.querySelectorAll("[data-call]"))) {
    button.addEventListener("click", () => call(page, button));
  }
}

/** Reads the lists of the page of nodes again. The editors stay in place, with all that was chosen
 * in them. @param {Page} page @param {any} current */
async function relist(page, current) {
  const { html } = await page.live.call("ui.open", current).catch(() => ({ html: "" }));
  const content = page.fragment(html);
  const machines = (/** @type {ParentNode} */ place) => Array.from(place.querySelectorAll("#listed [data-rename]"), (one) => `${/** @type {HTMLElement} */ (one).dataset.rename} ${/** @type {HTMLElement} */ (one).dataset.name}`).join();
  const before = machines(page.main);
  for (const id of here?.wanted.view === "nodes" ? ["listed", "paired"] : []) {
    const [old, now] = [by(id), content.getElementById(id)];
    if (!old || !now) continue;
    old.replaceWith(now);
    calls(page, now);
    renames(page, now);
  }
  if (machines(page.main) !== before && !page.isDirty?.()) page.renew?.();
  page.tick();
}

/** A button that is one call of the protocol. @param {Page} page @param {HTMLElement} button */
async function call(page, button) {
  const { call: method = "", id, sure: question } = button.dataset;
  if (question && !(await sure(question))) return;
  const names = { "device.pair.remove": "deviceId", "node.pair.remove": "nodeId" };
  const name = /** @type {any} */ (names)[method] ?? "requestId";
  try {
    await page.live.call(method, { [name]: id });
    page.relist();
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
    } else if (op === "append") target.append(page.fragment(html));
    else if (op === "remove") target.remove();
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
  if (!/** @type {any} */ (RELOADS)[current.view]?.includes(frame.event) || (page.isDirty?.() && current.view !== "nodes")) return;
  if (document.querySelector("dialog[open]") || (page.main.contains(document.activeElement) && isField(document.activeElement))) return;
  clearTimeout(soon);
  soon = setTimeout(() => {
    if (here?.wanted.view !== current.view) return;
    if (current.view === "nodes") page.relist();
    else if (!page.isDirty?.()) page.open(current.params);
  }, 300);
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
      // Shift+Tab leaves the terminal, which would otherwise trap the keyboard.
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
  }
  by("stdin")?.addEventListener("keydown", async (/** @type {KeyboardEvent} */ event) => {
    if (event.key !== "Enter") return;
    const field = by("stdin");
    await page.live.call("process.write", { sessionId, data: `${field.value}\n` }).catch((/** @type {any} */ error) => page.fail(error, by("typing")));
    field.value = "";
  });
  by("fit")?.addEventListener("click", async () => {
    const cell = el("span", { class: "cell" }, "0".repeat(20));
    screen.append(el("div", {}, cell));
    const { width, height } = cell.getBoundingClientRect();
    cell.parentElement?.remove();
    const columns = Math.max(20, Math.min(300, Math.floor((screen.clientWidth - 24) / (width / 20))));
    const rows = Math.max(5, Math.min(100, Math.floor((innerHeight * 0.7) / height)));
    await page.live.call("ui.screen", { sessionId, columns, rows }).then(() => page.open(), (/** @type {any} */ error) => page.fail(error, by("typing")));
  });
  by("signal")?.addEventListener("change", async () => {
    const signal = by("signal").value;
    by("signal").value = "";
    if (!signal || !(await sure(`Send ${signal} to this session?`, "Send"))) return;
    await page.live.call("process.kill", { sessionId, signal }).catch((/** @type {any} */ error) => page.fail(error, by("typing")));
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

// Policy.

/** @param {Page} page @param {any} wanted */
function policy(page, wanted) {
  if (document.activeElement !== by("command")) by("command").value = wanted.params.command ?? "";
  const explain = async () => {
    if (page.isDirty?.() && !(await sure("Explaining reads the page again. Discard the draft?", "Discard"))) return;
    page.open({ command: by("command").value, agent: by("agent").value, node: by("node").value || undefined });
  };
  by("explain").addEventListener("click", explain);
  by("command").addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => event.key === "Enter" && explain());
  by("agent").addEventListener("change", explain);
  by("node").addEventListener("change", () => by("command").value && explain());
  if (!by("draft")) return;
  const draft = new Draft(page);
  page.isDirty = () => draft.isDirty();
  by("run-cases").addEventListener("click", async () => {
    const params = { agent: by("agent").value, cases: by("cases").value || undefined, draft: draft.isOpen ? by("draft").value : undefined };
    try {
      const { html } = await page.live.call("ui.open", { view: "policy", params });
      const judged = page.fragment(html).querySelector("#judged");
      if (judged) by("judged").replaceWith(judged);
    } catch (error) {
      page.fail(error, by("judged"));
    }
  });
}

// Sandbox.

/** @param {Page} page */
function sandbox(page) {
  const said = (/** @type {any} */ answer) => `${answer.removed} removed${answer.busy ? `, ${answer.busy} stay because something runs in them` : ""}`;
  for (const button of page.main.querySelectorAll("[data-explain]")) {
    button.addEventListener("click", async () => {
      try {
        const { html } = await page.live.call("sandbox.explain", { agentId: button.dataset.explain });
        by("explained").replaceWith(page.fragment(html));
        by("explained").focus();
      } catch (error) {
        page.fail(error, button.closest(".entry"));
      }
    });
  }
  for (const button of page.main.querySelectorAll("[data-recreate]")) {
    button.addEventListener("click", async () => {
      const agentId = button.dataset.recreate;
      if (!(await sure(`Remove home and scratch directory of every sandbox of ${printable(agentId)}? The next run makes new ones.`, "Recreate"))) return;
      try {
        page.say(said(await page.live.call("sandbox.recreate", { agentId })));
        page.open();
      } catch (error) {
        page.fail(error, button.closest(".entry"));
      }
    });
  }
  by("prune")?.addEventListener("click", async () => {
    if (!(await sure("Remove the directories of sandboxes that were not used for long?", "Prune"))) return;
    try {
      page.say(said(await page.live.call("sandbox.prune", {})));
      page.open();
    } catch (error) {
      page.fail(error, by("scopes"));
    }
  });
}

// Audit.

/** @param {Page} page */
function audit(page) {
  const search = (/** @type {any} */ more = {}) => page.open({ kind: by("kind").value || undefined, agent: by("agent").value || undefined, approver: by("approver").value || undefined, text: by("text").value || undefined, ...more });
  by("approver").addEventListener("change", () => search());
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
      const found = await page.live.call("audit.list", { limit: 500, ...(cursor ? { cursor } : {}), ...(by("kind").value ? { kind: by("kind").value } : {}), ...(by("agent").value ? { agentId: by("agent").value } : {}), ...(by("approver").value ? { approver: by("approver").value } : {}) });
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
