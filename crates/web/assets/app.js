// @ts-check
// The frame around the pages: routes, keys, the state of the connection, logging in.

import { Live, base, el, fragment, isField, keep, kept, swap, worker } from "./live.js";
import { Inbox } from "./inbox.js";

const main = /** @type {HTMLElement} */ (document.getElementById("main"));
const banner = /** @type {HTMLElement} */ (document.getElementById("banner"));
const live = /** @type {HTMLElement} */ (document.getElementById("live"));
const state = /** @type {HTMLElement} */ (document.getElementById("link-state"));

/** First of all, the secret is removed from the address. */
const arrived = new URLSearchParams(location.hash.slice(1));
if (location.hash || location.search) history.replaceState(null, "", location.pathname);
try {
  window.name = "";
} catch {}

const VIEWS = ["inbox", "sessions", "nodes", "policy", "audit", "sandbox", "settings", "health"];

/** An address that cannot be decoded matches no page. @param {string} part */
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** @returns {{view: string, params: any}} */
function route() {
  const [first, second] = location.pathname.slice(base.length).split("/").filter(Boolean).map(decoded);
  if (first === "approve" && second) return { view: "approval", params: { id: second, alone: true } };
  if (first === "sessions" && second) return { view: "session", params: { id: second } };
  return { view: VIEWS.includes(first) ? first : "inbox", params: {} };
}

/** What pages share. */
const page = {
  el,
  swap,
  fragment,
  /** @type {any} */ opened: null,
  /** A page with unsaved changes says so here. @type {(() => boolean)|null} */ isDirty: null,
  pending: 0,
  title: "Interlock",
  main,
  live: /** @type {Live} */ (/** @type {any} */ (null)),
  /** @param {string} text */
  say(text) {
    live.textContent = text;
  },
  /** @param {any} error @param {Element} [where] */
  fail(error, where) {
    const text = `${error.message ?? error}${error.code ? ` (${error.code})` : ""}`;
    const note = el("p", { class: "problem", role: "alert" }, text);
    if (where) {
      where.querySelector(":scope > .problem")?.remove();
      where === main ? main.prepend(note) : where.append(note);
    } else page.say(text);
  },
  go,
  open,
  count,
  tick,
};

/** @param {number} pending */
function count(pending) {
  page.pending = pending;
  const badge = document.getElementById("nav-count");
  if (badge) badge.textContent = pending ? String(pending) : "";
  document.title = (pending ? `(${pending}) ` : "") + page.title;
}

/** @type {any} */ let current = null;
const inbox = new Inbox(page);
/** @type {any} */ let pages = null;
let opening = 0;

/** Opens the page of the address, or the given one. @param {any} [params] */
async function open(params) {
  const wanted = route();
  if (params) Object.assign(wanted.params, params);
  const mine = ++opening;
  const isElsewhere = () => current?.view !== wanted.view || current?.params?.id !== wanted.params.id;
  for (const link of document.querySelectorAll("[data-nav]")) {
    const name = link.getAttribute("data-nav");
    const isHere = name === wanted.view || (name === "inbox" && wanted.view === "approval") || (name === "sessions" && wanted.view === "session");
    if (isHere) {
      link.setAttribute("aria-current", "page");
      link.scrollIntoView({ block: "nearest", inline: "nearest" });
    }
    else link.removeAttribute("aria-current");
  }
  if (current?.view !== wanted.view) main.setAttribute("aria-busy", "true");
  try {
    const before = page.opened?.topic;
    // The code of a page loads before its fields appear, so that nothing changes while a user types.
    const isInbox = wanted.view === "inbox" || wanted.view === "approval";
    const [opened, served] = await Promise.all([page.live.call("ui.open", wanted), isInbox ? null : import("./pages.js")]);
    pages ??= served;
    if (mine !== opening) return;
    if (before && before !== opened.topic) page.live.call("ui.close", { topic: before }).catch(() => {});
    page.opened = opened;
    const isNew = isElsewhere();
    current = wanted;
    page.isDirty = null;
    page.title = wanted.view[0].toUpperCase() + wanted.view.slice(1);
    main.dataset.view = wanted.view;
    swap(main, opened.html, isNew);
    performance.mark("usable");
    main.removeAttribute("aria-busy");
    count(opened.pending);
    tick();
    if (isNew) {
      scrollTo(0, 0);
      main.focus({ preventScroll: true });
    }
    if (isInbox) inbox.opened(opened, wanted);
    else pages.opened(page, opened, wanted);
  } catch (error) {
    if (mine !== opening) return;
    main.removeAttribute("aria-busy");
    if (error.code === "OFFLINE") return;
    // An open page stays, with all unsaved input.
    if (!isElsewhere()) return page.fail(error, main);
    const again = el("button", { class: "button", onclick: () => open(params) }, "Retry");
    const home = el("a", { class: "button quiet", href: `${base}/inbox` }, "Inbox");
    main.replaceChildren(
      el("section", { class: "empty" }, el("h1", {}, "This page cannot be shown"),
        el("p", {}, `${error.message ?? error}`), el("p", { class: "faint" }, error.code ?? ""), el("p", { class: "actions" }, again, home)));
  }
}

/** @param {string} path */
function go(path) {
  if (page.isDirty?.() && !confirm("Leave without saving?")) return;
  page.isDirty = null;
  history.pushState(null, "", path);
  open();
}

document.addEventListener("click", (event) => {
  const link = event.target instanceof Element ? event.target.closest("a[href^='/']") : null;
  if (!link || event.defaultPrevented || event.button || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  go(/** @type {string} */ (link.getAttribute("href")));
});
addEventListener("popstate", () => open());
addEventListener("beforeunload", (event) => {
  if (page.isDirty?.()) event.preventDefault();
});

// Times that count down or up.

/** @param {number} ms */
function span(ms) {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  if (seconds >= 86400) return `${Math.floor(seconds / 86400)} d`;
  if (seconds >= 3600) return `${Math.floor(seconds / 3600)} h ${String(Math.floor(seconds / 60) % 60).padStart(2, "0")}`;
  return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
}

function tick() {
  const now = Date.now();
  for (const time of main.querySelectorAll("time[data-until]")) {
    const left = Number(/** @type {HTMLElement} */ (time).dataset.until) - now;
    const text = left > 0 ? span(left) : "over";
    if (time.textContent !== text) time.textContent = text;
    time.classList.toggle("soon", left < 120_000);
  }
  for (const time of main.querySelectorAll("time[data-at]")) {
    const date = new Date(Number(/** @type {HTMLElement} */ (time).dataset.at));
    const isToday = date.toDateString() === new Date().toDateString();
    const clock = date.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hour12: false });
    const text = isToday ? clock : `${date.toLocaleDateString([], { day: "numeric", month: "short" })} ${clock}`;
    if (time.textContent !== text) time.textContent = text;
  }
}
setInterval(tick, 1000);

// Keys. Typing into a field is never a command, even if the field disappears.

/** Letters this soon after a field disappears were meant for it. */
const TYPING_MS = 700;
/** The field that has or last had the focus. @type {HTMLElement|null} */ let field = null;
let typed = -TYPING_MS;
document.addEventListener("focusin", (event) => {
  if (isField(event.target)) field = /** @type {HTMLElement} */ (event.target);
  else if (field?.isConnected) field = null;
});
// A click leaves a field on purpose.
document.addEventListener("pointerdown", () => {
  field = null;
  typed = -TYPING_MS;
}, true);

/** Whether a key outside fields was meant for a field. @param {KeyboardEvent} event */
function isForField(event) {
  const isLost = field !== null && !field.isConnected;
  if (isLost) field = null;
  if (!isLost && performance.now() - typed >= TYPING_MS) return false;
  if (event.key.length === 1 || event.key === "Enter") typed = performance.now();
  return true;
}

let leader = 0;
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (event.key === "Escape") {
    field = null;
    typed = -TYPING_MS;
    if (isField(event.target)) /** @type {HTMLElement} */ (event.target).blur();
    inbox.escape();
    return;
  }
  if (isField(event.target) || document.querySelector("dialog[open]")) return;
  if (isForField(event)) return event.preventDefault();
  if (Date.now() - leader < 1200) {
    leader = 0;
    // A letter opens the first page of that name: Sessions, not Sandbox.
    const target = { b: "sandbox", e: "settings" }[event.key] ?? VIEWS.find((view) => view[0] === event.key);
    if (target) {
      event.preventDefault();
      go(`${base}/${target}`);
    }
    return;
  }
  if (event.key === "g") {
    leader = Date.now();
    return;
  }
  if (event.key === "?") return help();
  if (event.key === "/") {
    const search = /** @type {HTMLElement|null} */ (main.querySelector("[data-search]"));
    if (search) {
      event.preventDefault();
      search.focus();
    }
    return;
  }
  if (main.dataset.view === "inbox" || main.dataset.view === "approval") inbox.key(event);
  else if (event.key === "j" || event.key === "k") move(event.key === "j" ? 1 : -1);
});

/** Moves to the next row of a list or table. Enter opens it, as the browser does. @param {number} by */
function move(by) {
  const rows = /** @type {HTMLElement[]} */ (Array.from(main.querySelectorAll("a.entry, li.entry button:first-of-type, summary")));
  const at = rows.indexOf(/** @type {any} */ (document.activeElement));
  rows[Math.max(0, Math.min(rows.length - 1, at + by))]?.focus();
}

const help = () => import("./parts.js").then((parts) => parts.help());
document.getElementById("help")?.addEventListener("click", help);

// Each browser has its own theme.

const theme = /** @type {HTMLElement} */ (document.getElementById("theme"));
/** @param {string|null} name */
function paint(name) {
  if (name) document.documentElement.dataset.theme = name;
  else delete document.documentElement.dataset.theme;
}
paint(localStorage.getItem("theme"));
theme?.addEventListener("click", () => {
  const isDark = document.documentElement.dataset.theme
    ? document.documentElement.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  const name = isDark ? "light" : "dark";
  localStorage.setItem("theme", name);
  paint(name);
});

// The connection.

/** @param {string} word @param {string} text */
function show(word, text) {
  document.body.dataset.link = word;
  state.textContent = text;
}

/** @param {string} title @param {...any} rest */
function gate(title, ...rest) {
  current = null;
  page.opened = null;
  main.dataset.view = "gate";
  main.removeAttribute("aria-busy");
  main.replaceChildren(el("section", { class: "gate" }, el("h1", {}, title), ...rest));
}

function signIn(error) {
  const field = el("input", { type: "password", id: "token", autocomplete: "off", spellcheck: "false", "aria-label": "Operator token", placeholder: "Operator token" });
  const note = el("p", { class: "problem", role: "alert" });
  if (error && !/^AUTH_(TOKEN|PASSWORD)_MISSING$/.test(error.code)) note.textContent = `${error.code === "UI_CODE_INVALID" ? "This link was used before" : error.message} (${error.code})`;
  const enter = (/** @type {Event} */ event) => {
    event.preventDefault();
    page.live.secret = { token: field.value.trim() };
    field.value = "";
    page.live.start();
  };
  gate("Sign in",
    el("p", {}, "On the gateway's machine, this opens the page and lets this browser in:"),
    el("pre", { class: "command" }, el("code", {}, "interlock dashboard")),
    el("p", {}, "Or paste an operator token. It is used for this connection and kept nowhere."),
    el("div", { class: "line" }, field, el("button", { class: "button primary", onclick: enter }, "Connect")), note);
  field.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => event.key === "Enter" && enter(event));
}

let lastData = Date.now();
page.live = new Live((what, value) => {
  if (what === "event") return onEvent(value);
  if (what === "open") {
    show("on", "Connected");
    banner.hidden = true;
    document.body.classList.remove("offline");
    inbox.connected();
    // This version's files are cached, to start without the gateway.
    setTimeout(() => worker().catch(() => {}), 2000);
    // Another version has other pages. Reload only once, because a proxy may cache the old document.
    const version = value.server?.version ?? "";
    if (version !== document.documentElement.dataset.version && sessionStorage.getItem("version") !== version && !page.isDirty?.()) {
      sessionStorage.setItem("version", version);
      return renew();
    }
    return open();
  }
  if (what === "closed") {
    show("off", "Offline");
    document.body.classList.add("offline");
    const clock = new Date(lastData).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
    banner.hidden = false;
    banner.textContent = page.opened
      ? `Offline. What you see is from ${clock}; deciding and saving are off until the gateway answers again.`
      : "The gateway does not answer. Trying again.";
    return;
  }
  banner.hidden = true;
  document.body.classList.remove("offline");
  if (what === "foreign") {
    show("off", "Another server");
    return gate("Another server answers here",
      el("p", {}, "This browser was paired with a gateway that has another key. Nothing was sent to the server at this address."),
      el("p", {}, "If you replaced the gateway or its state on purpose, forget the old one and pair again."),
      el("button", { class: "button", onclick: forget }, "Forget the old gateway"));
  }
  if (what === "waiting") {
    show("wait", "Waiting");
    const id = value.details?.requestId ?? "";
    const words = value.details?.words;
    if (words) {
      return gate("Almost in",
        el("p", {}, "The other screen shows the same words. There, let this phone in:"),
        el("p", { class: "words" }, words),
        el("p", { class: "faint" }, "The page goes on by itself."));
    }
    return gate("Waiting to be let in",
      el("p", {}, "An operator has to let this browser in: on the page Nodes of another browser, or with"),
      el("pre", { class: "command" }, el("code", {}, `interlock devices approve ${id.slice(0, 8)}`)),
      el("p", { class: "faint" }, `This browser is device ${value.deviceId.slice(0, 12)}. The page goes on by itself.`));
  }
  show("off", "Not signed in");
  signIn(value);
});

/** Loads the pages of the gateway's present version. The gateway has proved its identity. */
async function renew() {
  for (const name of (await window.caches?.keys()) ?? []) await caches.delete(name);
  location.reload();
}

async function forget() {
  for (const key of ["server", "token", "device", "scopes"]) await keep(key, undefined);
  location.reload();
}

/** @param {any} frame */
function onEvent(frame) {
  lastData = Date.now();
  if (frame.event === "ui.patch") {
    const patch = frame.payload;
    if (patch.pendingChange) count(Math.max(0, page.pending + patch.pendingChange));
    if (patch.topic === "approvals") return inbox.patch(patch);
    if (page.opened && patch.topic === page.opened.topic) {
      if (patch.seq !== page.opened.seq + 1) return open(current?.params);
      page.opened.seq = patch.seq;
      return pages?.patch(page, patch);
    }
    return;
  }
  if (frame.event === "session.event") inbox.event(frame.payload);
  if (current && current.view !== "inbox" && current.view !== "approval") pages?.event(page, frame, current);
}

(async () => {
  if (!window.isSecureContext || !crypto.subtle) {
    show("off", "Not secure");
    return gate("This page needs encryption",
      el("p", {}, "Beyond the gateway's own machine, the page works over TLS only. On the gateway's machine:"),
      el("pre", { class: "command" }, el("code", {}, "interlock config set gateway.tls.enabled true\ninterlock gateway restart")));
  }
  for (const other of (await navigator.serviceWorker?.getRegistrations()) ?? []) {
    const script = (other.active ?? other.waiting ?? other.installing)?.scriptURL ?? "";
    if (new URL(script, location.href).pathname !== `${base}/sw.js`) await other.unregister();
  }
  const code = arrived.get("code");
  const token = arrived.get("token");
  const pair = arrived.get("pair");
  if (code) page.live.secret = { code };
  else if (token) page.live.secret = { token };
  else if (pair) page.live.secret = { code: pair, isPhone: true };
  await kept("device").catch(() => null);
  page.live.start();
})();
