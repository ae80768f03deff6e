// Makes a small fixture of a state directory that `make-state.sh` had the real program write.
//
//   NODE reduce-state.mjs HOME TARGET
//
// Kept: the config, the approvals document, and of the database the two tables that an import reads. Secrets that
// the program made are replaced, and the home directory becomes /home/ada. The made-up secrets of
// `make-state.sh` stay, so that a test can show that they go nowhere.
import fs from "node:fs";
import path from "node:path";
import { DatabaseSync } from "node:sqlite";

const [home, target] = process.argv.slice(2);
const state = path.join(home, ".openclaw");
fs.mkdirSync(target, { recursive: true });

const anonymous = (text) =>
  text.replaceAll(home, "/home/ada").replaceAll(/"token": "(?!fixture-)[^"]*"/g, '"token": "removed"');

for (const name of ["openclaw.json", "exec-approvals.json"]) {
  const from = path.join(state, name);
  if (fs.existsSync(from)) fs.writeFileSync(path.join(target, name), anonymous(fs.readFileSync(from, "utf8")));
}

const database = path.join(state, "state/openclaw.sqlite");
if (fs.existsSync(database)) {
  fs.mkdirSync(path.join(target, "state"), { recursive: true });
  const small = path.join(target, "state/openclaw.sqlite");
  fs.rmSync(small, { force: true });
  const from = new DatabaseSync(database);
  const to = new DatabaseSync(small);
  for (const table of ["exec_approvals_config", "schema_meta"]) {
    const { sql } = from.prepare("SELECT sql FROM sqlite_master WHERE name = ?").get(table);
    to.exec(sql);
    for (const row of from.prepare(`SELECT * FROM ${table}`).all()) {
      const names = Object.keys(row);
      const values = names.map((name) => (typeof row[name] === "string" ? anonymous(row[name]) : row[name]));
      to.prepare(`INSERT INTO ${table} (${names.join(", ")}) VALUES (${names.map(() => "?").join(", ")})`).run(...values);
    }
  }
  to.exec("VACUUM");
  to.close();
  from.close();
}
