// @ts-check
// The config, as a form of its schema and as text.

import { el } from "./live.js";
import { by, printable } from "./parts.js";

/** @typedef {any} Page */

/** @param {Page} page */
export async function settings(page) {
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
    if (fields.length) groups.push(el("details", { class: "list", open: groups.length === 0 && !matchMedia("(max-width: 720px)").matches }, el("summary", { class: "pad" }, el("b", {}, name), el("span", { class: "faint small" }, `${fields.length} ${fields.length === 1 ? "key" : "keys"}`)), el("div", { class: "pad grid" }, ...fields)));
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
