// @ts-check
// A draft of the approvals document. It is edited as text and replayed, and only a judged text can be saved.

import { el } from "./live.js";
import { by, printable, sure } from "./parts.js";
import { merge, differences } from "./documents.js";

/** @typedef {any} Page */

/** A document without usage data of its entries. @param {any} file */
function plain(file) {
  const copy = structuredClone(file);
  for (const scope of Object.values(copy.agents ?? {})) {
    for (const entry of /** @type {any} */ (scope).allowlist ?? []) for (const key of ["lastUsedAt", "lastUsedCommand", "lastResolvedPath"]) delete entry[key];
  }
  return copy;
}

/** @param {any} file */
const text = (file) => `${JSON.stringify(file, null, 2)}\n`;

/** The editor on the page Policy. @param {Page} page */
export class Draft {
  /** @param {Page} page */
  constructor(page) {
    this.page = page;
    /** The document that the draft was made from, and its hash. @type {any} */ this.base = null;
    this.hash = "";
    /** The replay of the text that is in the editor. @type {any} */ this.judged = null;
    by("draft-begin").addEventListener("click", () => this.begin().catch((/** @type {any} */ error) => page.fail(error, by("draft-block"))));
    by("draft").addEventListener("input", () => this.changed());
    by("replay").addEventListener("click", () => this.replay());
    by("draft-save").addEventListener("click", () => this.save());
    by("draft-drop").addEventListener("click", async () => (!this.isDirty() || (await sure("Discard this draft?", "Discard"))) && this.close());
  }

  get isOpen() {
    return Boolean(this.base);
  }

  isDirty() {
    return this.isOpen && by("draft")?.value !== text(this.base);
  }

  async begin() {
    const read = await this.page.live.call("exec.approvals.get", {});
    this.base = plain(read.file);
    this.hash = read.hash;
    this.show(text(this.base));
  }

  /** @param {string} value */
  show(value) {
    by("draft").value = value;
    by("draft-list").hidden = false;
    by("draft-begin").hidden = true;
    this.changed();
    by("draft").focus();
  }

  close() {
    this.base = null;
    this.changed();
    by("draft-list").hidden = true;
    by("draft-begin").hidden = false;
    by("draft-begin").focus();
  }

  /** A text that was not judged cannot be saved. */
  changed() {
    this.judged = null;
    by("draft-save").disabled = true;
    by("replayed").replaceChildren();
  }

  /** @param {any} error */
  fail(error) {
    by("replayed").replaceChildren(el("div", { class: "pad" }, el("p", { class: "problem", role: "alert" }, ...printable(`${error.message}`).split("\n").flatMap((line) => [line, el("br")]))));
  }

  async replay() {
    const raw = by("draft").value;
    by("replay").disabled = true;
    try {
      const judged = await this.page.live.call("policy.replay", { raw, limit: Number(by("replay-limit").value) });
      if (by("draft").value !== raw) return;
      by("replayed").replaceWith(this.page.fragment(judged.html));
      this.judged = judged;
      by("draft-save").disabled = !this.isDirty();
      this.page.say(`${judged.promptsSaved} fewer prompts, ${judged.newlyAllowed} newly allowed, ${judged.newlyAsked} newly asked, ${judged.newlyRefused} newly refused`);
    } catch (error) {
      this.changed();
      this.fail(error);
    } finally {
      by("replay").disabled = false;
    }
  }

  async save() {
    const { judged } = this;
    if (!judged) return;
    if (judged.baseHash !== this.hash) return this.conflict();
    const looser = judged.loosened.map((/** @type {string} */ what) => el("li", {}, printable(what)));
    if (looser.length && !(await sure("This allows more on the gateway:", "Save", el("ul", { class: "mind" }, ...looser)))) return;
    by("draft").disabled = by("draft-save").disabled = by("replay").disabled = true;
    try {
      await this.page.live.call("exec.approvals.set", { file: judged.file, baseHash: this.hash });
      this.close();
      this.page.say("Saved.");
      this.page.open();
    } catch (error) {
      if (/changed/i.test(error.message ?? "")) return this.conflict();
      this.fail({ message: `Not saved: ${error.message} (${error.code})` });
    } finally {
      for (const id of ["draft", "replay"]) if (by(id)) by(id).disabled = false;
    }
  }

  /** Another editor was faster. */
  async conflict() {
    const theirs = await this.page.live.call("exec.approvals.get", {});
    const other = plain(theirs.file);
    const { merged, clashes } = merge(this.base, other, this.judged.file);
    const row = (/** @type {string} */ title, /** @type {string[]} */ lines) => el("div", { class: "field" }, el("span", {}, title), el("pre", { class: "text small" }, lines.map(printable).join("\n") || "nothing"));
    const yes = await sure(
      clashes.length ? "Not saved. The document changed meanwhile, and you both changed the same. Yours are kept where they clash." : "Not saved. The document changed meanwhile. Both changes fit together.",
      "Use the merged document",
      el("div", { class: "grid", id: "three-way" }, row("theirs, since you began", differences(this.base, other)), row("yours", differences(this.base, this.judged.file)), row("clashes", clashes)));
    if (!yes) return this.fail({ message: "Not saved. Your draft is still here." });
    this.base = other;
    this.hash = theirs.hash;
    this.show(text(merged));
    this.fail({ message: "Not saved yet: replay the merged document, and save it." });
  }
}
