// @ts-nocheck
// The worker caches the pages' files, so that they open without the gateway, and shows notifications. It
// stores no data. The gateway puts the version of the files in front of this text.

const base = new URL(self.registration.scope).pathname.replace(/\/$/, "");
const CACHE = `interlock-${VERSION}`;

self.addEventListener("install", (event) => {
  // The document names its own files.
  event.waitUntil((async () => {
    const shell = await fetch(`${base}/inbox`, { cache: "no-store", credentials: "omit" });
    if (!shell.ok) throw new Error("no shell");
    const text = await shell.clone().text();
    const cache = await caches.open(CACHE);
    await cache.put(`${base}/`, shell);
    const files = Array.from(text.matchAll(/(?:src|href)="([^"]+\/ui\/[0-9a-f]+\/[^"]+)"/g), (found) => found[1]);
    const later = ["pages.js", "parts.js", "documents.js", "draft.js", "settings.js", "push.js"].map((name) => `${base}/ui/${VERSION}/${name}`);
    await cache.addAll([...new Set([...files, ...later])]);
    await self.skipWaiting();
  })());
});

self.addEventListener("activate", (event) => {
  event.waitUntil((async () => {
    for (const name of await caches.keys()) if (name.startsWith("interlock-") && name !== CACHE) await caches.delete(name);
    await self.clients.claim();
  })());
});

self.addEventListener("fetch", (event) => {
  const url = new URL(event.request.url);
  if (event.request.method !== "GET" || url.origin !== self.location.origin) return;
  const isFile = url.pathname.startsWith(`${base}/ui/${VERSION}/`);
  const isPage = event.request.mode === "navigate" && !url.pathname.startsWith(`${base}/ui/`) && url.pathname !== "/ca.crt";
  if (!isFile && !isPage) return;
  // Cached files come first: until the page has seen its gateway's proof, no other server's document
  // replaces them.
  event.respondWith((async () => {
    const cache = await caches.open(CACHE);
    const kept = await cache.match(isPage ? `${base}/` : event.request.url);
    return kept ?? fetch(event.request);
  })());
});

const TAG = "interlock-";

self.addEventListener("push", (event) => {
  event.waitUntil((async () => {
    let message;
    try {
      message = event.data.json();
    } catch {
      message = { kind: "test", title: "Interlock", body: "A message that cannot be read." };
    }
    const { kind, id, title, body } = message;
    const options = { body, tag: TAG + (id ?? kind), icon: `${base}/ui/${VERSION}/icon.svg`, data: message };
    if (kind === "asked") {
      options.actions = [{ action: "review", title: "Review" }, { action: "deny", title: "Deny" }];
      options.requireInteraction = true;
    } else options.silent = true;
    await self.registration.showNotification(title, options);
  })());
});

self.addEventListener("notificationclick", (event) => {
  const message = event.notification.data ?? {};
  event.notification.close();
  event.waitUntil(event.action === "deny" && message.kind === "asked" ? deny(message) : review(message));
});

async function review(message) {
  const path = message.id ? `${base}/approve/${encodeURIComponent(message.id)}` : `${base}/inbox`;
  const all = await self.clients.matchAll({ type: "window", includeUncontrolled: true });
  const open = all.find((client) => new URL(client.url).pathname === path);
  return open ? open.focus() : self.clients.openWindow(path);
}

async function deny(message) {
  const show = (body) => self.registration.showNotification("Interlock", { body, tag: TAG + message.id, data: { id: message.id }, silent: true });
  try {
    const device = await kept("device");
    const signedAt = Date.now();
    const text = ["interlock-push", message.id, message.digest, "deny", message.nonce, signedAt].join("|");
    const bytes = new Uint8Array(await crypto.subtle.sign("Ed25519", device.key, new TextEncoder().encode(text)));
    const signature = btoa(String.fromCharCode(...bytes)).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
    const answer = await fetch(`${base}/push/answer`, {
      method: "POST",
      credentials: "omit",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ deviceId: device.id, id: message.id, digest: message.digest, decision: "deny", nonce: message.nonce, signedAt, signature }),
    });
    if (answer.ok) return show("Denied.");
    const said = await answer.json().catch(() => ({}));
    return show(`Not denied: ${said.error?.message ?? answer.status}. Tap to open it.`);
  } catch {
    return show("Not denied: the gateway cannot be reached. Tap to open it.");
  }
}

function kept(key) {
  return new Promise((resolve, reject) => {
    const opening = indexedDB.open("interlock", 1);
    opening.onerror = () => reject(opening.error);
    opening.onsuccess = () => {
      const found = opening.result.transaction("kept").objectStore("kept").get(key);
      found.onsuccess = () => resolve(found.result);
      found.onerror = () => reject(found.error);
    };
  });
}
