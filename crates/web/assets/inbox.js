// @ts-check
// Pending approvals: rows, cards, decisions. A decision names the card under the pointer or the focus, by
// id, digest and ticket. A card that appeared by itself takes no decision for a moment.

import { base, el, fragment } from "./live.js";

/** How long something that appeared by itself takes no decision. */
const CALM_MS = 700;
/** Letters that follow each other faster were meant for a field. */
const TYPING_MS = 100;
const LEASES = [[15, "15 minutes"], [30, "30 minutes"], [60, "1 hour"], [480, "8 hours"], [1440, "1 day"]];

/** @param {number} minutes */
const inWords = (minutes) => LEASES.find(([value]) => value === minutes)?.[1] ?? `${minutes} minutes`;

/** The other approvals that a row stands for. @param {Element|null} row @returns {string[]} */
const equalTo = (row) => (/** @type {HTMLElement|null} */ (row)?.dataset.equal ?? "").split(" ").filter(Boolean);

/** Whether a card decides for all equal approvals. @param {Element} card */
const isAlike = (card) => /** @type {HTMLInputElement|null} */ (card.querySelector("[data-alike]"))?.checked ?? false;

export class Inbox {
  /** @param {any} page */
  constructor(page) {
    this.page = page;
    /** @type {Map<string, string>} */ this.tickets = new Map();
    /** The plans that the tickets are for. @type {Map<string, string>} */ this.digests = new Map();
    /** Rows that wait behind the pill. @type {string[]} */ this.waiting = [];
    /** Approvals that the list hides behind a row that has ended. */ this.released = 0;
    this.selected = new Set();
    /** Recent patches, applied again to a view that was read before them. @type {any[]} */ this.recent = [];
    /** Rows that are open, which stay open when the list is read again. */ this.unfolded = new Set();
    /** The search text, which stays as well. */ this.sought = "";
    this.pressed = /** @type {Element|null} */ (null);
    document.addEventListener("pointerdown", (event) => {
      this.pressed = event.target instanceof Element ? event.target.closest("[data-act]") : null;
    }, true);
    document.addEventListener("click", (event) => this.click(event));
    page.main.addEventListener("input", (/** @type {Event} */ event) => this.input(event));
    this.seen = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        if (!entry.isIntersecting) continue;
        /** @type {HTMLElement} */ (entry.target).dataset.seen = "";
        this.refresh(entry.target.closest(".card"));
      }
      // On a phone the buttons cover the end of the window. Text beneath them was not seen.
    }, { rootMargin: matchMedia("(max-width: 720px) and (min-height: 561px)").matches ? "0px 0px -215px 0px" : "0px" });
  }

  get main() {
    return /** @type {HTMLElement} */ (this.page.main);
  }

  /** A new connection numbers its patches anew. */
  connected() {
    this.seq = undefined;
    this.recent = [];
  }

  /** A view was swapped in. @param {any} opened @param {any} wanted */
  opened(opened, wanted) {
    this.waiting = [];
    this.released = 0;
    this.pill();
    this.selected.clear();
    this.seq = Math.max(this.seq ?? 0, opened.seq);
    this.take(opened);
    this.alone = wanted.view === "approval";
    this.filter = wanted.params.agent ?? "";
    this.host = wanted.params.host ?? "";
    const search = /** @type {HTMLInputElement|null} */ (this.main.querySelector("[data-find]"));
    if (search && search !== document.activeElement) search.value = this.sought ?? "";
    this.find();
    for (const card of this.main.querySelectorAll(".card[data-digest]")) this.begin(card);
    const first = this.main.querySelector(".row .head, .card[data-digest]");
    if (first && !this.alone) this.focusRow(this.main.querySelector(".row"), false);
    for (const id of this.unfolded) {
      const row = this.row(id);
      if (row) this.toggle(row);
    }
    for (const patch of this.recent) if (patch.seq > opened.seq) this.apply(patch);
    this.batch();
  }

  /** @param {any} opened */
  take(opened) {
    for (const [id, ticket] of Object.entries(opened.tickets ?? {})) this.tickets.set(id, /** @type {string} */ (ticket));
    for (const [id, digest] of Object.entries(opened.digests ?? {})) this.digests.set(id, /** @type {string} */ (digest));
  }

  /** A card appeared. @param {Element} card */
  begin(card) {
    const element = /** @type {HTMLElement} */ (card);
    element.dataset.born = String(performance.now());
    element.classList.add("calm");
    setTimeout(() => {
      element.classList.remove("calm");
      this.refresh(element);
    }, CALM_MS);
    for (const end of card.querySelectorAll("[data-end]")) this.seen.observe(end);
    this.refresh(card);
  }

  /** Enables Allow once every text was seen to its end. @param {Element|null} card */
  refresh(card) {
    if (!card) return;
    const unseen = card.querySelectorAll("[data-end]:not([data-seen])").length;
    const isMasked = card.hasAttribute("data-masked");
    const isMany = isAlike(card);
    const isBound = ["native", "file"].includes(/** @type {HTMLElement} */ (card).dataset.kind ?? "");
    for (const button of card.querySelectorAll("[data-act=allow], [data-act=confirm]")) {
      const isForOne = button.matches("[data-act=allow]") && (!isBound || button.getAttribute("data-word") !== "allow-once");
      /** @type {HTMLButtonElement} */ (button).disabled = unseen > 0 || isMasked || (isMany && isForOne);
    }
    const note = card.querySelector("[data-unseen]");
    if (note) {
      // Its space stays, so that nothing moves under the pointer.
      note.classList.toggle("gone", unseen === 0 && !isMasked);
      note.textContent = isMasked ? "Reveal what is masked, then allow." : "Scroll to the end of the text to allow.";
    }
  }

  /** @param {Element|null} element */
  isCalm(element) {
    const card = /** @type {HTMLElement|null} */ (element?.closest(".card"));
    return card?.dataset.born ? performance.now() - Number(card.dataset.born) >= CALM_MS : true;
  }

  /** A row by its id. @param {string} id @returns {HTMLElement|null} */
  row(id) {
    return document.getElementById(`row-${id}`);
  }

  /** @param {Element|null} row @param {boolean} [moves] */
  focusRow(row, moves = true) {
    for (const other of this.main.querySelectorAll(".row.here")) other.classList.remove("here");
    row?.classList.add("here");
    if (row && moves) {
      /** @type {HTMLElement|null} */ (row.querySelector(".head"))?.focus();
      row.scrollIntoView({ block: "nearest" });
    }
  }

  /** The card that a key applies to: the focused row's open card, or the only card. */
  card() {
    if (this.alone) return this.main.querySelector(".card[data-digest]");
    const here = document.activeElement?.closest(".row") ?? this.main.querySelector(".row.here");
    return here?.querySelector(".card[data-digest]") ?? null;
  }

  /** Opens a row in place, or closes it. @param {Element} row */
  async toggle(row) {
    const id = /** @type {HTMLElement} */ (row).dataset.id ?? "";
    const head = row.querySelector(".head");
    const card = /** @type {HTMLElement} */ (row.querySelector(".card"));
    this.focusRow(row, false);
    if (head?.getAttribute("aria-expanded") === "true") {
      head.setAttribute("aria-expanded", "false");
      card.hidden = true;
      card.replaceChildren();
      card.removeAttribute("data-digest");
      this.unfolded.delete(id);
      return;
    }
    head?.setAttribute("aria-expanded", "true");
    this.unfolded.add(id);
    card.hidden = false;
    if (!card.firstChild) card.append(el("p", { class: "faint loading" }, "Reading the plan…"));
    await this.load(card, id, false);
  }

  /** @param {HTMLElement} card @param {string} id @param {boolean} reveal */
  async load(card, id, reveal) {
    try {
      const equal = equalTo(card.closest(".row"));
      const opened = await this.page.live.call("ui.open", { view: "approval", params: { id, reveal, equal } });
      this.take(opened);
      const content = fragment(opened.html);
      const fresh = content.querySelector(".card");
      card.replaceChildren(...Array.from(fresh?.childNodes ?? []));
      for (const { name, value } of Array.from(fresh?.attributes ?? [])) if (name.startsWith("data-")) card.setAttribute(name, value);
      if (!fresh?.hasAttribute("data-masked")) card.removeAttribute("data-masked");
      this.begin(card);
      this.batch();
      this.page.tick();
    } catch (error) {
      card.replaceChildren();
      this.page.fail(error, card);
      card.append(el("button", { class: "button", onclick: () => this.load(card, id, reveal) }, "Retry"));
    }
  }

  /** @param {MouseEvent} event */
  click(event) {
    const target = event.target instanceof Element ? event.target.closest("[data-act]") : null;
    if (!target || !this.main.contains(target)) return;
    // A click counts only where the pointer pressed. A key (detail 0) presses what has the focus.
    if (event.detail > 0 && this.pressed !== target) return;
    if (event.detail > 1 && target.getAttribute("data-act") !== "select") return;
    this.act(target);
  }

  /** @param {Element} target */
  act(target) {
    const act = target.getAttribute("data-act");
    const row = target.closest(".row");
    const card = /** @type {HTMLElement|null} */ (target.closest(".card"));
    if (act === "toggle" && row) return this.toggle(row);
    if (act === "pill") return this.unroll();
    if (act === "more") return this.more(/** @type {HTMLElement} */ (target));
    if (act === "agent") return this.only(target.getAttribute("data-agent") ?? "");
    if (act === "select" && row) return this.select(row);
    if (act === "batch") return this.askBatch(target.getAttribute("data-word") ?? "");
    if (act === "batch-confirm") return this.doBatch(target.getAttribute("data-word") ?? "");
    if (act === "batch-back") return this.batch();
    if (act === "again") {
      /** @type {HTMLButtonElement} */ (target).disabled = true;
      return this.page.live.call("exec.approval.askAgain", { id: target.getAttribute("data-again") })
        .then((/** @type {any} */ asked) => (this.alone ? this.page.go(`${base}/approve/${asked.id}`) : this.page.open()), (/** @type {any} */ error) => this.page.fail(error, target.parentElement ?? undefined));
    }
    if (act === "revoke") {
      return this.page.live.call("exec.approval.grants.revoke", { grantId: target.getAttribute("data-grant") })
        .then(() => this.page.open(), (/** @type {any} */ error) => this.page.fail(error, target.closest(".entry")));
    }
    if (act === "reveal" && card) return this.load(card, card.dataset.id ?? "", true);
    if (!card || document.body.classList.contains("offline") || !this.isCalm(target)) return;
    if (act === "back") return this.step(card, null);
    if (act === "deny" && isAlike(card)) return this.step(card, "deny");
    if (act === "deny") return this.decide(card, "deny");
    if (/** @type {HTMLButtonElement} */ (target).disabled) return;
    const word = target.getAttribute("data-word") ?? "allow-once";
    if (act === "allow" && word === "allow-once" && card.dataset.kind !== "unbound" && !isAlike(card)) return this.decide(card, word);
    if (act === "allow") return this.step(card, word);
    if (act === "confirm") return this.decide(card, card.dataset.step ?? "");
  }

  /** The second step: one sentence that says what is allowed from now on.
   * @param {HTMLElement} card @param {string|null} word */
  step(card, word) {
    const place = card.querySelector(".confirm");
    const bar = card.querySelector(".choices");
    if (!place || !bar) return;
    if (!word) {
      delete card.dataset.step;
      card.dataset.born = String(performance.now() - CALM_MS);
      /** @type {HTMLElement} */ (place).hidden = true;
      /** @type {HTMLElement} */ (bar).hidden = false;
      /** @type {HTMLElement|null} */ (bar.querySelector("[data-act=allow]"))?.focus();
      return;
    }
    card.dataset.step = word;
    const parts = [];
    if (isAlike(card)) {
      const many = equalTo(card.closest(".row")).length + 1;
      parts.push(el("p", {}, word === "deny" ? `Deny all ${many}?` : `Run each of these ${many} once, as it was shown?`));
    } else if (word === "allow-once") {
      parts.push(el("p", {}, "What runs cannot be pinned: it may be something else by the time it starts. Run it once all the same?"));
    } else if (word === "allow-session") {
      parts.push(el("p", {}, "This exact command runs again without asking, in this conversation, until it ends: same directory, environment, terminal and files."));
    } else if (word === "lease") {
      const choice = el("select", { class: "lease", "aria-label": "For how long" }, ...LEASES.map(([value, text]) => el("option", { value: String(value), selected: value === 30 }, String(text))));
      parts.push(el("p", {}, "This exact command runs again without asking, in this conversation, for ", choice, "."));
    } else {
      const forms = card.querySelector("template.forms") ?? card.querySelector(".forms");
      const list = forms?.cloneNode(true);
      if (list instanceof HTMLElement) {
        list.hidden = false;
        list.classList.remove("forms");
        list.classList.add("form-choice");
        for (const [at, field] of list.querySelectorAll("input").entries()) {
          field.name += "-chosen";
          field.checked = at === 0;
        }
      }
      parts.push(el("p", {}, `From now on, agent ${card.dataset.agent} runs this without asking. What is stored:`), list);
    }
    parts.push(el("div", { class: "line" },
      el("button", { class: `button ${word === "deny" ? "deny" : "allow"}`, "data-act": "confirm" }, word === "deny" ? "Yes, deny" : "Yes, allow", el("kbd", {}, "y")),
      el("button", { class: "button quiet", "data-act": "back" }, "Back", el("kbd", {}, "Esc"))));
    place.replaceChildren(...parts.filter(Boolean));
    /** @type {HTMLElement} */ (place).hidden = false;
    /** @type {HTMLElement} */ (bar).hidden = true;
    card.dataset.born = String(performance.now() - CALM_MS + 150);
    this.refresh(card);
    /** @type {HTMLElement|null} */ (place.querySelector("[data-act=confirm]"))?.focus();
  }

  /** @param {HTMLElement} card @param {string} word */
  async decide(card, word) {
    if (card.dataset.deciding || !card.dataset.digest || card.hasAttribute("data-ended")) return;
    if (isAlike(card)) return this.decideAlike(card, word);
    const id = card.dataset.id ?? "";
    /** @type {any} */ const params = { id, decision: word, planDigest: card.dataset.digest };
    if (word === "deny") {
      const reason = /** @type {HTMLInputElement|null} */ (card.querySelector("[data-reason]"))?.value.trim();
      if (reason) params.reason = reason;
    } else params.ticket = this.tickets.get(id);
    if (word === "lease") params.expiresInMs = Number(/** @type {HTMLSelectElement|null} */ (card.querySelector(".lease"))?.value ?? 30) * 60_000;
    if (word === "allow-always") {
      const form = /** @type {HTMLInputElement|null} */ (card.querySelector(".form-choice input:checked"));
      if (form) params.form = form.value;
    }
    card.dataset.deciding = word;
    card.classList.add("busy");
    try {
      await this.page.live.call("exec.approval.resolve", params);
      this.page.say(word === "deny" ? "Denied." : "Allowed.");
    } catch (error) {
      const winner = error.details?.why;
      this.page.fail(winner ? { message: `Not decided here: ${winner}`, code: error.code } : error, card.querySelector(".decide") ?? card);
    } finally {
      delete card.dataset.deciding;
      card.classList.remove("busy");
    }
  }

  /** Decides all that ask for exactly the same, each by itself.
   * @param {HTMLElement} card @param {string} word */
  async decideAlike(card, word) {
    const ids = [card.dataset.id ?? "", ...equalTo(card.closest(".row"))];
    const known = ids.filter((id) => this.tickets.has(id) || id === card.dataset.id);
    const digests = new Map(known.map((id) => [id, this.digests.get(id) ?? ""]));
    const items = known.map((id) => ({ id, planDigest: digests.get(id) ?? "", ...(this.tickets.has(id) ? { ticket: this.tickets.get(id) } : {}) }));
    const reason = /** @type {HTMLInputElement|null} */ (card.querySelector("[data-reason]"))?.value.trim();
    card.dataset.deciding = word;
    card.classList.add("busy");
    try {
      const { results } = await this.page.live.call("exec.approval.resolveMany", { items, decision: word, ...(word === "deny" && reason ? { reason } : {}) });
      const failed = results.filter((/** @type {any} */ one) => !one.ok);
      this.page.say(`${results.length - failed.length} decided.`);
      if (failed.length) this.page.fail({ message: `${failed.length} not decided: ${failed[0].message}`, code: failed[0].code }, card.querySelector(".decide") ?? card);
    } catch (error) {
      this.page.fail(error, card.querySelector(".decide") ?? card);
    } finally {
      delete card.dataset.deciding;
      card.classList.remove("busy");
    }
  }

  /** @param {any} patch */
  patch(patch) {
    if (this.seq !== undefined && patch.seq !== this.seq + 1) {
      this.seq = patch.seq;
      if (["inbox", "approval"].includes(this.main.dataset.view ?? "")) this.page.open();
      return;
    }
    this.seq = patch.seq;
    this.recent.push(patch);
    if (this.recent.length > 100) this.recent.shift();
    this.apply(patch);
  }

  /** @param {any} patch */
  apply(patch) {
    let isNew = false;
    for (const { op, id, html } of patch.ops) {
      if (op === "prepend") {
        isNew = true;
        const name = /id="(row-[^"]+)"/.exec(html)?.[1] ?? "";
        if (this.joins(html, name.slice(4))) continue;
        const isThere = document.getElementById(name) || this.waiting.some((row) => row.includes(`id="${name}"`));
        if (this.main.dataset.view === "inbox" && !isThere) this.waiting.push(html);
        continue;
      }
      const target = document.getElementById(id);
      if (id.startsWith("receipts-")) {
        for (const part of Array.from(fragment(html).children)) document.getElementById(part.id)?.replaceWith(part);
        this.page.tick();
        continue;
      }
      if (id.startsWith("run-")) {
        const line = fragment(html).firstElementChild;
        if (target && line) target.replaceWith(line);
        this.page.tick();
        continue;
      }
      if (!target) {
        if (id.startsWith("row-")) this.leave(id.slice(4));
        this.waiting = this.waiting.filter((row) => !row.includes(`id="${id}"`));
        continue;
      }
      if (op === "remove") target.remove();
      else if (op === "replace") this.end(target, html);
    }
    this.pill();
    if (isNew) this.page.say(`${this.page.pending} waiting`);
  }

  /** Counts a new approval in a row that looks the same. The gateway compares what they ask for
   * before both can be decided together. @param {string} html @param {string} id */
  joins(html, id) {
    const same = /data-same="([^"]+)"/.exec(html)?.[1] ?? "";
    const row = /** @type {HTMLElement|null} */ (same ? this.main.querySelector(`.row[data-same="${same}"]:not(.ended)`) : null);
    if (!row || row.dataset.id === id || equalTo(row).includes(id)) return Boolean(row);
    this.count(row, [...equalTo(row), id]);
    return true;
  }

  /** One of several equal ones ended. @param {string} id */
  leave(id) {
    const row = Array.from(this.main.querySelectorAll(".row[data-equal]")).find((one) => equalTo(one).includes(id));
    if (row) this.count(row, equalTo(row).filter((other) => other !== id));
  }

  /** Says how many a row stands for. @param {Element} row @param {string[]} equal */
  count(row, equal) {
    /** @type {HTMLElement} */ (row).dataset.equal = equal.join(" ");
    const times = /** @type {HTMLElement|null} */ (row.querySelector(".times"));
    if (!times) return;
    times.hidden = equal.length === 0;
    times.textContent = `×${equal.length + 1}`;
    const alike = row.querySelector("[data-alike]")?.closest("label");
    if (alike && !equal.length) alike.remove();
  }

  /** An approval ended: its row stays where it is, grayed out, without buttons.
   * @param {HTMLElement} target @param {string} html */
  end(target, html) {
    const content = fragment(html).firstElementChild;
    if (!content) return;
    if (target.classList.contains("row")) {
      target.classList.add("ended");
      target.classList.remove("selected");
      this.released += equalTo(target).length;
      this.selected.delete(target.dataset.id);
      this.unfolded.delete(target.dataset.id);
      const status = content.querySelector(".status");
      target.querySelector(".left")?.replaceWith(status ?? "");
      const card = /** @type {HTMLElement|null} */ (target.querySelector(".card"));
      if (card) this.close(card, content);
      this.batch();
    } else if (target.classList.contains("card")) this.close(target, content);
  }

  /** @param {HTMLElement} card @param {Element} content */
  close(card, content) {
    card.setAttribute("data-ended", "");
    const outcome = content.querySelector(".outcome");
    const again = content.querySelector(".again");
    const bar = /** @type {HTMLElement|null} */ (card.querySelector(".decide"));
    if (!bar || !outcome) return;
    // Its space stays, so that nothing moves under the pointer.
    bar.style.minHeight = `${bar.offsetHeight}px`;
    bar.replaceChildren(outcome.cloneNode(true), ...(again ? [again.cloneNode(true)] : []));
    this.page.tick();
  }

  /** What became of an allowed run. @param {any} event */
  event(event) {
    const place = document.getElementById(`run-${event.runId}`);
    // The card already shows a denial's text.
    if (place && !place.hasAttribute("data-run") && !place.closest(".outcome")?.querySelector(".bad")) place.textContent = event.text;
  }

  pill() {
    const pill = document.getElementById("pill");
    if (!pill) return;
    const many = this.waiting.length + this.released;
    pill.hidden = many === 0;
    pill.textContent = this.waiting.length ? `${many} new` : `${many} more`;
    if (this.waiting.length && !this.main.querySelector(".row")) this.unroll();
  }

  unroll() {
    const list = document.getElementById("rows");
    if (!list) return;
    if (this.released) return this.again();
    document.getElementById("nothing")?.remove();
    for (const html of this.waiting) {
      const content = fragment(html);
      const row = content.firstElementChild;
      if (row instanceof HTMLElement) this.place(list, row);
    }
    this.waiting = [];
    this.pill();
    this.find();
  }

  /** Reads the list again, as it is filtered. @param {any} [change] */
  again(change = {}) {
    const params = { agent: this.filter, host: this.host, ...change };
    this.page.open({ agent: params.agent || undefined, host: params.host || undefined });
  }

  /** Puts a new row on top of its agent's rows. @param {HTMLElement} list @param {HTMLElement} row */
  place(list, row) {
    const { agent = "" } = row.dataset;
    const where = row.querySelector(".who .faint")?.textContent?.replace(/^ @ /, "");
    if ((this.filter && agent !== this.filter) || (this.host && where !== this.host)) return;
    const rows = /** @type {HTMLElement[]} */ (Array.from(list.querySelectorAll(".row")));
    const own = rows.find((other) => other.dataset.agent === agent);
    if (own) return own.before(row);
    if (rows.length && !this.filter) {
      if (!list.querySelector(".group")) list.prepend(el("li", { class: "group" }, rows[0].dataset.agent ?? ""));
      list.prepend(el("li", { class: "group" }, agent), row);
    } else list.prepend(row);
  }

  /** @param {HTMLElement} button */
  async more(button) {
    /** @type {HTMLButtonElement} */ (button).disabled = true;
    const params = { offset: Number(button.dataset.offset), agent: this.filter || undefined, host: this.host || undefined };
    const opened = await this.page.live.call("ui.open", { view: "inbox", params }).catch((/** @type {any} */ error) => {
      /** @type {HTMLButtonElement} */ (button).disabled = false;
      this.page.fail(error, button.parentElement ?? undefined);
    });
    if (!opened) return;
    const content = fragment(opened.html);
    const rows = content.querySelectorAll(".row, .group");
    for (const row of rows) if (row.matches(".group") || !row.id) document.getElementById("rows")?.append(row);
    else if (!document.getElementById(row.id)) document.getElementById("rows")?.append(row);
    const next = content.querySelector("[data-act=more]");
    if (next) button.replaceWith(next);
    else button.remove();
  }

  /** @param {string} agent */
  only(agent) {
    this.again({ agent });
  }

  /** @param {Event} event */
  input(event) {
    const field = /** @type {HTMLInputElement} */ (event.target);
    if (field.matches("[data-host]")) return this.again({ host: field.value });
    if (field.matches("[data-alike]")) return this.refresh(field.closest(".card"));
    if (field.matches("[data-find]")) this.find((this.sought = field.value));
  }

  /** Filters the rows on the page. @param {string} [text] */
  find(text) {
    const wanted = (text ?? /** @type {HTMLInputElement|null} */ (this.main.querySelector("[data-find]"))?.value ?? "").toLowerCase();
    for (const row of this.main.querySelectorAll(".row")) {
      /** @type {HTMLElement} */ (row).hidden = wanted !== "" && !(row.querySelector(".head")?.textContent ?? "").toLowerCase().includes(wanted);
    }
  }

  // Batches.

  /** @param {Element} row */
  select(row) {
    const id = /** @type {HTMLElement} */ (row).dataset.id ?? "";
    if (row.classList.contains("ended")) return;
    if (this.selected.has(id)) this.selected.delete(id);
    else this.selected.add(id);
    row.classList.toggle("selected", this.selected.has(id));
    row.querySelector("[data-act=select]")?.setAttribute("aria-checked", String(this.selected.has(id)));
    this.batch();
  }

  /** Approvals of one conversation that were opened, are whole, and are bound. */
  allowable() {
    const rows = Array.from(this.selected, (id) => this.row(id));
    const keys = new Set(rows.map((row) => row?.dataset.session));
    return keys.size === 1 && rows.every((row) => row && this.tickets.has(row.dataset.id ?? "") && ["native", "file"].includes(row.dataset.kind ?? ""));
  }

  batch() {
    const bar = document.getElementById("batch");
    if (!bar) return;
    const many = this.selected.size;
    bar.hidden = many === 0;
    if (!many) return;
    const allow = el("button", { class: "button allow", "data-act": "batch", "data-word": "allow-once", disabled: !this.allowable() }, `Allow ${many} once…`);
    const deny = el("button", { class: "button deny", "data-act": "batch", "data-word": "deny" }, `Deny ${many}…`);
    const note = this.allowable() ? "" : "To allow together: one conversation, each opened and read, bound to a program or a file.";
    bar.replaceChildren(el("span", { class: "grow" }, `${many} selected`, note && el("span", { class: "faint" }, ` ${note}`)), deny, allow);
  }

  /** @param {string} word */
  askBatch(word) {
    const bar = /** @type {HTMLElement} */ (document.getElementById("batch"));
    const many = this.selected.size;
    const text = word === "deny" ? `Deny ${many} approvals?` : `Run each of these ${many} once, as it was shown?`;
    bar.replaceChildren(el("span", { class: "grow" }, text),
      el("button", { class: "button quiet", "data-act": "batch-back" }, "Back"),
      el("button", { class: `button ${word === "deny" ? "deny" : "allow"}`, "data-act": "batch-confirm", "data-word": word }, "Yes"));
    /** @type {HTMLElement|null} */ (bar.querySelector("[data-act=batch-confirm]"))?.focus();
  }

  /** @param {string} word */
  async doBatch(word) {
    if (word !== "deny" && !this.allowable()) return this.batch();
    const items = Array.from(this.selected, (id) => {
      const row = this.row(id);
      const ticket = this.tickets.get(id);
      return { id, planDigest: row?.dataset.digest ?? "", ...(ticket ? { ticket } : {}) };
    });
    try {
      const { results } = await this.page.live.call("exec.approval.resolveMany", { items, decision: word });
      const failed = results.filter((/** @type {any} */ one) => !one.ok);
      for (const one of results) if (one.ok) this.selected.delete(one.id);
      this.batch();
      const bar = document.getElementById("batch");
      if (failed.length && bar) {
        bar.hidden = false;
        this.page.fail({ message: `${failed.length} not decided: ${failed[0].message}`, code: failed[0].code }, bar);
      }
    } catch (error) {
      this.page.fail(error, document.getElementById("batch") ?? undefined);
    }
  }

  // Keys, the same as those of `interlock approvals watch`.

  escape() {
    const card = this.card();
    if (card instanceof HTMLElement && card.dataset.step) this.step(card, null);
    else if (document.getElementById("batch")?.querySelector("[data-act=batch-back]")) this.batch();
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const key = event.key;
    if (key === "j" || key === "k") {
      const rows = Array.from(this.main.querySelectorAll(".row:not([hidden])"));
      const at = rows.findIndex((row) => row.classList.contains("here"));
      const to = rows[Math.max(0, Math.min(rows.length - 1, at + (key === "j" ? 1 : -1)))];
      if (to) this.focusRow(to);
      return event.preventDefault();
    }
    if (event.repeat) {
      if (key === "Enter" || key.length === 1) event.preventDefault();
      return;
    }
    const here = document.activeElement?.closest(".row") ?? this.main.querySelector(".row.here");
    if (key === "Enter" && here && [document.body, this.main].includes(/** @type {any} */ (document.activeElement))) {
      event.preventDefault();
      return this.toggle(here);
    }
    if (key === "x" && here) return this.select(here);
    const isTyping = performance.now() - (this.typed ?? -TYPING_MS) < TYPING_MS;
    if (key.length === 1) this.typed = performance.now();
    const card = this.card();
    if (!(card instanceof HTMLElement) || isTyping) return;
    const step = card.dataset.step;
    const wanted = step
      ? { y: "[data-act=confirm]" }[key]
      : { o: "[data-word=allow-once]", s: "[data-word=allow-session]", l: "[data-word=lease]", a: "[data-word=allow-always]", d: "[data-act=deny]", r: "[data-act=reveal]" }[key];
    const button = wanted ? card.querySelector(wanted) : null;
    if (button) {
      event.preventDefault();
      this.act(button);
    }
  }
}
