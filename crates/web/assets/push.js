// @ts-check
// Phones: pairing by a QR code, and notifications on this device.

import { el, fragment, worker } from "./live.js";
import { by, printable } from "./parts.js";

/** @typedef {any} Page */

/** @param {Page} page */
export function phones(page) {
  by("pair-phone")?.addEventListener("click", () => invite(page).catch((error) => page.fail(error, by("phones"))));
  notifications(page).catch((error) => page.fail(error, by("notifications")));
  if (page.live.may("admin")) chats(page).catch((error) => page.fail(error, by("phones")));
}

/** Lists the chats of approvals, their message counts, and unused config. @param {Page} page */
async function chats(page) {
  const { targets, problems } = await page.live.call("channels.list");
  if (!targets.length && !problems.length) return;
  const rows = targets.map((/** @type {any} */ one) => {
    const said = el("span", { class: "small muted", role: "status" });
    const test = el("button", { class: "button small", onclick: async () => {
      test.disabled = true;
      const { targets: [tried] } = await page.live.call("channels.test", { target: one.target }).catch((/** @type {any} */ error) => ({ targets: [{ problem: error.message }] }));
      said.className = tried?.problem ? "small bad" : "small good";
      said.textContent = printable(tried?.problem ? `failed: ${tried.problem}` : "it arrived");
      test.disabled = false;
    } }, "Test");
    return el("li", { class: "entry" },
      el("span", { class: "grow" }, printable(one.target), el("span", { class: "sub" }, `${one.queued} queued · ${one.sent} sent · `, el("span", { class: one.failed ? "bad" : "" }, `${one.failed} failed`))), said, test);
  });
  const unused = problems.map((/** @type {any} */ one) => el("li", { class: "entry" }, el("span", { class: "grow" }, el("code", {}, printable(one.key)), el("span", { class: "sub warn" }, printable(one.why)))));
  by("chats")?.remove();
  by("phones")?.after(el("section", { class: "block", id: "chats" }, el("header", {}, el("h2", {}, "Chats")), el("ul", { class: "list" }, ...rows, ...unused)));
}

/** Shows the code, then the phone that came with it. @param {Page} page */
async function invite(page) {
  const invited = await page.live.call("ui.phone");
  const place = el("div", { id: "phone" });
  const authority = invited.authorityFingerprint
    ? [el("p", { class: "muted small" }, "If the phone does not trust the address, install the gateway's own authority first: ", el("code", {}, new URL("/ca.crt", invited.url).href)),
      el("p", { class: "faint small" }, "SHA-256 ", el("code", {}, invited.authorityFingerprint))]
    : [];
  place.append(fragment(invited.html), el("p", {}, "Scan it with the phone's camera. It is good for 5 minutes and one phone."),
    el("p", { class: "faint small" }, el("code", {}, invited.url)), ...authority);
  const dialog = el("dialog", { class: "phone-dialog", "aria-label": "Pair a phone" }, el("h2", {}, "Pair a phone"), place,
    el("p", { class: "actions" }, el("button", { class: "button quiet", onclick: () => dialog.close() }, "Close")));
  dialog.addEventListener("close", () => {
    clearInterval(looking);
    dialog.remove();
  });
  document.body.append(dialog);
  dialog.showModal();
  /** @type {string} */ let shown = "";
  const look = async () => {
    const { pending } = await page.live.call("device.pair.list");
    const phone = pending.find((/** @type {any} */ one) => one.words);
    if (!phone || shown === phone.requestId) return;
    shown = phone.requestId;
    const decide = async (/** @type {string} */ method) => {
      await page.live.call(method, { requestId: phone.requestId });
      dialog.close();
      page.say(method.endsWith("approve") ? "The phone is let in." : "Rejected.");
    };
    place.replaceChildren(el("p", {}, "Does the phone show these words?"), el("p", { class: "words" }, phone.words),
      el("p", { class: "muted small" }, `${phone.displayName ?? "A phone"} · ${phone.scopes.join(", ").replaceAll("operator.", "")}`),
      el("div", { class: "line" },
        el("button", { class: "button deny", id: "phone-reject", onclick: () => decide("device.pair.reject") }, "No, reject it"),
        el("button", { class: "button primary", id: "phone-approve", onclick: () => decide("device.pair.approve") }, "Yes, let it in")));
  };
  const looking = setInterval(() => look().catch(() => {}), 700);
}

/** @param {string} text */
const bytes = (text) => Uint8Array.from(atob(text.replace(/-/g, "+").replace(/_/g, "/")), (c) => c.charCodeAt(0));

/** @param {Page} page */
async function notifications(page) {
  const place = by("notifications");
  if (!place) return;
  const say = (/** @type {any[]} */ ...parts) => place.replaceChildren(...parts);
  const button = (/** @type {string} */ id, /** @type {string} */ text, /** @type {() => Promise<any>} */ act) =>
    el("button", { class: "button small", id, onclick: () => act().then(() => notifications(page), (error) => page.fail(error, place)) }, text);
  if (!page.live.may("approvals")) return say(el("span", { class: "muted" }, "Only devices that may decide are notified."));
  if (!navigator.serviceWorker || !("PushManager" in window)) return say(el("span", { class: "muted" }, "This browser has no notifications. On an iPhone, add the page to the home screen first."));
  const { publicKey, subscribed } = await page.live.call("push.key");
  const registration = await worker();
  const off = async () => {
    await (await registration?.pushManager.getSubscription())?.unsubscribe();
    await page.live.call("push.unsubscribe");
  };
  if (subscribed) {
    const test = async () => {
      const { problem } = await page.live.call("push.test");
      if (problem) throw { message: problem };
      page.say("Sent.");
    };
    return say(el("span", { class: "grow good" }, "On"), button("push-test", "Test", test), button("push-off", "Turn off", off));
  }
  const on = async () => {
    if ((await Notification.requestPermission()) !== "granted") throw { message: "The browser does not allow notifications for this page." };
    const made = await registration?.pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: bytes(publicKey) });
    const { endpoint, keys } = /** @type {any} */ (made?.toJSON());
    await page.live.call("push.subscribe", { endpoint, p256dh: keys.p256dh, auth: keys.auth });
  };
  say(el("span", { class: "grow muted" }, "Off"), button("push-on", "Turn on", on));
}
