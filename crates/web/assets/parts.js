// @ts-check
// Small parts that pages share: confirmations, prompts, and text made visible.

import { el } from "./live.js";

/** @param {string} id @returns {any} */
export const by = (id) => document.getElementById(id);

/** Asks before an action that cannot be undone. @param {string} text @param {string} yes @param {...any} more
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
export function ask(text, value) {
  const field = el("input", { type: "text", value, "aria-label": text });
  const answer = sure(text, "Save", el("p", {}, field));
  field.select();
  return answer.then((yes) => (yes ? field.value.trim() : null));
}

/** Shows control characters, which are never interpreted. @param {string} text */
export const printable = (text) => text.replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u00a0\u00ad\u061c\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g, (c) => `\\u{${c.charCodeAt(0).toString(16).toUpperCase()}}`);

const HELP = [
  ["g then i s n p a b e h", "go to Inbox, Sessions, Nodes, Policy, Audit, Sandbox, Settings, Health"],
  ["j  k  Enter", "move, open"],
  ["o  d", "allow once, deny"],
  ["s  l  a  then y", "for the session, for a time, always; y confirms"],
  ["r", "reveal masked secrets"],
  ["x", "select for a batch"],
  ["/  ?  Esc", "search, this help, close"],
];

/** Shows the keys. */
export function help() {
  const dialog = el("dialog", { class: "sheet", "aria-label": "Keys" },
    el("h2", {}, "Keys"),
    el("dl", { class: "keys" }, ...HELP.flatMap(([keys, text]) => [el("dt", {}, el("kbd", {}, keys)), el("dd", {}, text)])),
    el("button", { class: "button", onclick: () => dialog.close() }, "Close"));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}
