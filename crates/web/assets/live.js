// @ts-check
// The connection to the gateway: this browser's identity, one socket, and rendered HTML.

/** @typedef {{code: string, message: string, details?: any}} CallError */

/** The path below which the pages are. Empty for `/`. */
export const base = document.documentElement.dataset.base ?? "";

const types = /** @type {any} */ (window).trustedTypes;
const own = {
  createHTML: (/** @type {string} */ text) => text,
  createScriptURL: (/** @type {string} */ text) => {
    if (text !== `${base}/sw.js`) throw new Error("not the worker of these pages");
    return text;
  },
};
const policy = types ? types.createPolicy("interlock", own) : own;

/** The worker of these pages, once it runs. Its address is the only script that a page may name. */
export async function worker() {
  if (!navigator.serviceWorker) return null;
  // @ts-ignore: a TrustedScriptURL is as good as a text here.
  await navigator.serviceWorker.register(policy.createScriptURL(`${base}/sw.js`), { scope: `${base}/` });
  return navigator.serviceWorker.ready;
}

const FORBIDDEN = "script,style,iframe,frame,object,embed,link,meta,base,form,template,math,audio,video,img,foreignObject,use,animate,animateMotion,animateTransform,set";
const URL_ATTRIBUTES = ["href", "src", "action", "formaction", "xlink:href", "srcset", "ping"];

/** Parses rendered HTML without running any of it, and refuses all that no view contains.
 * @param {string} html @returns {DocumentFragment} */
export function fragment(html) {
  const template = document.createElement("template");
  // @ts-ignore: a TrustedHTML is as good as a text here.
  template.innerHTML = policy.createHTML(html);
  const bad = template.content.querySelector(FORBIDDEN);
  if (bad) throw new Error(`the view contains <${bad.localName}>`);
  for (const element of template.content.querySelectorAll("*")) {
    for (const { name, value } of Array.from(element.attributes)) {
      if (name.startsWith("on") || name === "style") throw new Error(`the view contains ${name}=`);
      // Browsers read a backslash as a slash, and leave out control characters.
      if (URL_ATTRIBUTES.includes(name) && !/^(\/(?!\/)|#)[^\\\u0000-\u001f]*$/.test(value)) {
        throw new Error("the view leads elsewhere");
      }
      if (base && name === "href" && value.startsWith("/")) element.setAttribute(name, base + value);
    }
  }
  return template.content;
}

/** @param {any} target */
export const isField = (target) =>
  target instanceof HTMLElement && (target.isContentEditable || /^(input|textarea|select)$/i.test(target.tagName));

/** Replaces an element's content. Keeps scroll positions and the focused field by id, with its
 * text and selection.
 * @param {Element} target @param {string} html @param {boolean} [isOther] what comes is another view */
export function swap(target, html, isOther = false) {
  const content = fragment(html);
  const focused = /** @type {any} */ (target.contains(document.activeElement) && !isOther ? document.activeElement : null);
  const { value = null, selectionStart = null, selectionEnd = null } = isField(focused) ? focused : {};
  const scrolls = new Map();
  for (const element of target.querySelectorAll("[data-keep-scroll][id]")) {
    scrolls.set(element.id, element.scrollTop);
  }
  target.replaceChildren(content);
  for (const [id, top] of scrolls) {
    const element = document.getElementById(id);
    if (element) element.scrollTop = top;
  }
  const again = /** @type {any} */ (focused?.id ? document.getElementById(focused.id) : null);
  if (!again || !target.contains(again)) return;
  again.focus({ preventScroll: true });
  // The gateway decides what a list offers.
  if (value === null || !isField(again) || again.localName === "select") return;
  again.value = value;
  if (selectionStart !== null) again.setSelectionRange?.(selectionStart, selectionEnd);
}

/** Makes an element out of plain values: children are text, never markup.
 * @param {string} tag @param {Record<string, any>} [attributes] @param {...(Node|string|null|undefined|false)} children
 * @returns {any} */
export function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in element && typeof value !== "string") /** @type {any} */ (element)[name] = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children) if (child || child === "") element.append(child);
  return element;
}

// What this browser stores: its key, which scripts cannot read, and the gateway's data.

/** @returns {Promise<IDBDatabase>} */
function database() {
  return new Promise((resolve, reject) => {
    const opening = indexedDB.open("interlock", 1);
    opening.onupgradeneeded = () => opening.result.createObjectStore("kept");
    opening.onsuccess = () => resolve(opening.result);
    opening.onerror = () => reject(opening.error);
  });
}

/** @param {string} key @returns {Promise<any>} */
export async function kept(key) {
  const store = (await database()).transaction("kept").objectStore("kept").get(key);
  return new Promise((resolve, reject) => {
    store.onsuccess = () => resolve(store.result);
    store.onerror = () => reject(store.error);
  });
}

/** @param {string} key @param {any} value */
export async function keep(key, value) {
  const change = (await database()).transaction("kept", "readwrite");
  const store = change.objectStore("kept");
  if (value === undefined) store.delete(key);
  else store.put(value, key);
  return new Promise((resolve, reject) => {
    change.oncomplete = () => resolve(undefined);
    change.onerror = () => reject(change.error);
  });
}

/** @param {ArrayBuffer} bytes */
const base64url = (bytes) =>
  btoa(String.fromCharCode(...new Uint8Array(bytes))).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");

/** @param {string} text */
const fromBase64url = (text) =>
  Uint8Array.from(atob(text.replace(/-/g, "+").replace(/_/g, "/")), (c) => c.charCodeAt(0));

async function identity() {
  const known = await kept("device");
  if (known) return known;
  const pair = /** @type {CryptoKeyPair} */ (await crypto.subtle.generateKey("Ed25519", false, ["sign", "verify"]));
  const raw = await crypto.subtle.exportKey("raw", pair.publicKey);
  const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", raw));
  const id = Array.from(hash, (byte) => byte.toString(16).padStart(2, "0")).join("");
  const device = { key: pair.privateKey, publicKey: base64url(raw), id };
  await keep("device", device);
  return device;
}

/** The browser's name, which its owner recognizes. */
function browserName() {
  const agent = navigator.userAgent;
  const names = [["Edg/", "Edge"], ["Firefox/", "Firefox"], ["Chrome/", "Chrome"], ["Safari/", "Safari"]];
  const name = names.find(([mark]) => agent.includes(mark))?.[1] ?? "Browser";
  const systems = ["Android", "iPhone", "iPad", "Mac", "Windows", "Linux"];
  return `${name} on ${systems.find((system) => agent.includes(system)) ?? "a device"}`;
}

const SCOPES = ["operator.admin", "operator.approvals", "operator.pairing", "operator.read", "operator.write"];

/** The scopes of a browser that used a QR code. */
const PHONE_SCOPES = ["operator.approvals", "operator.read"];

/** A connection that reconnects by itself. `on` gets: open, closed, refused, waiting, foreign, event. */
export class Live {
  /** @param {(what: string, value: any) => void} on */
  constructor(on) {
    this.on = on;
    /** @type {WebSocket|null} */ this.socket = null;
    /** @type {Map<string, {resolve: Function, reject: Function}>} */ this.calls = new Map();
    this.number = 0;
    this.tries = 0;
    this.starts = 0;
    this.isOpen = false;
    this.scopes = /** @type {string[]} */ ([]);
    /** A secret for the next connection, stored nowhere. @type {{code?: string, token?: string, isPhone?: boolean}} */
    this.secret = {};
    addEventListener("online", () => this.retry());
    document.addEventListener("visibilitychange", () => {
      if (!document.hidden && !this.isOpen) this.retry();
    });
  }

  retry() {
    // A socket that is still opening must not be replaced.
    if (this.isOpen || Number(this.socket?.readyState) < 2) return;
    clearTimeout(this.timer);
    this.start();
  }

  /** @param {number} delay */
  later(delay) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.start(), delay);
  }

  async start() {
    // Only the last start counts. A second socket would take the answers of the first one's calls.
    const mine = ++this.starts;
    const isOwn = await this.isOwnServer().catch(() => null);
    if (isOwn === false || mine !== this.starts) return;
    if (!isOwn) return this.lost();
    const scheme = location.protocol === "https:" ? "wss:" : "ws:";
    const socket = new WebSocket(`${scheme}//${location.host}${base}/`);
    this.socket = socket;
    socket.onmessage = (message) => this.received(JSON.parse(message.data), socket);
    socket.onclose = () => this.socket === socket && this.lost();
  }

  /** Whether the server holds the key that this browser pinned at pairing. Until that is proved,
   * this browser sends it no data. */
  async isOwnServer() {
    const pinned = await kept("server");
    const nonce = base64url(crypto.getRandomValues(new Uint8Array(24)).buffer);
    const answer = await fetch(`${base}/ui/proof/${nonce}`, { cache: "no-store", redirect: "error" });
    if (!answer.ok) throw new Error(`proof: ${answer.status}`);
    const { publicKey, signature } = await answer.json();
    const key = await crypto.subtle.importKey("raw", fromBase64url(publicKey), "Ed25519", false, ["verify"]);
    const text = new TextEncoder().encode(`interlock-ui|${location.host}|${nonce}`);
    const holds = await crypto.subtle.verify("Ed25519", key, fromBase64url(signature), text);
    if (!holds || (pinned && pinned !== publicKey)) {
      this.on("foreign", null);
      return false;
    }
    this.server = publicKey;
    return true;
  }

  lost() {
    const wasOpen = this.isOpen;
    this.isOpen = false;
    this.socket = null;
    for (const call of this.calls.values()) call.reject({ code: "OFFLINE", message: "the connection was lost; nothing more is known" });
    this.calls.clear();
    if (this.stopped) return;
    this.on("closed", { wasOpen });
    this.tries += 1;
    this.later(Math.min(500 * 2 ** Math.min(this.tries, 4), 5000));
  }

  /** @param {any} frame @param {WebSocket} socket */
  async received(frame, socket) {
    if (socket !== this.socket) return;
    if (frame.type === "event" && frame.event === "connect.challenge") return this.introduce(frame.payload.nonce);
    if (frame.type === "event") return this.on("event", frame);
    const call = this.calls.get(frame.id);
    this.calls.delete(frame.id);
    if (!call) return;
    if (frame.ok) call.resolve(frame.payload);
    else {
      const details = frame.error?.details ?? {};
      call.reject({ code: details.code ?? details.reason ?? frame.error?.code ?? "ERROR", message: frame.error?.message ?? "refused", details });
    }
  }

  /** @param {string} nonce */
  async introduce(nonce) {
    const device = await identity();
    const deviceToken = await kept("token");
    const { code, token } = this.secret;
    const client = {
      id: "openclaw-control-ui", mode: "ui", version: document.documentElement.dataset.version || "0",
      platform: "web", displayName: browserName(),
    };
    const auth = token ? { token } : code ? { bootstrapToken: code } : deviceToken ? { deviceToken } : {};
    const scopes = this.secret.isPhone ? PHONE_SCOPES : (await kept("scopes")) ?? SCOPES;
    const signedAt = Date.now();
    const text = ["v3", device.id, client.id, client.mode, "operator", scopes.join(","), signedAt,
      token ?? code ?? deviceToken ?? "", nonce, "web", ""].join("|");
    const signature = base64url(await crypto.subtle.sign("Ed25519", device.key, new TextEncoder().encode(text)));
    const params = {
      minProtocol: 4, maxProtocol: 4, client, role: "operator", scopes, auth,
      device: { id: device.id, publicKey: device.publicKey, signature, signedAt, nonce },
    };
    try {
      const hello = await this.call("connect", params, true);
      if (this.secret.isPhone) await keep("scopes", scopes);
      this.secret = {};
      this.tries = 0;
      this.isOpen = true;
      this.scopes = hello.auth.scopes;
      if (hello.auth.deviceToken) await keep("token", hello.auth.deviceToken);
      await keep("server", this.server);
      this.on("open", hello);
    } catch (error) {
      if (error.code === "OFFLINE") return;
      this.stopped = true;
      this.socket?.close();
      this.stopped = false;
      this.socket = null;
      if (error.code === "PAIRING_REQUIRED") {
        this.on("waiting", { ...error, deviceId: device.id });
        return this.later(1500);
      }
      this.secret = {};
      if (error.code === "AUTH_DEVICE_TOKEN_MISMATCH") await keep("token", undefined);
      this.on("refused", error);
    }
  }

  /** @param {string} method @param {any} [params] @param {boolean} [first] @returns {Promise<any>} */
  call(method, params = {}, first = false) {
    const socket = this.socket;
    if (!socket || socket.readyState !== WebSocket.OPEN || (!first && !this.isOpen)) {
      return Promise.reject({ code: "OFFLINE", message: "the gateway cannot be reached" });
    }
    const id = String(++this.number);
    return new Promise((resolve, reject) => {
      this.calls.set(id, { resolve, reject });
      socket.send(JSON.stringify({ type: "req", id, method, params }));
    });
  }

  /** @param {string} scope */
  may(scope) {
    return this.scopes.includes("operator.admin") || this.scopes.includes(`operator.${scope}`);
  }
}
