// Decides the next approval on a connection of its own and ends: decide.mjs PORT TOKEN READY DECISION [COMMAND…]. It makes the
// file READY when it watches; the command, if there is one, is run before it decides.
import { execFileSync } from "node:child_process";
import fs from "node:fs";
import { connect } from "./gateway.mjs";

const [port, token, ready, decision, ...before] = process.argv.slice(2);
const approver = await connect(port, token, async (event, payload) => {
  if (event !== "exec.approval.requested") return;
  if (before.length > 0) execFileSync(before[0], before.slice(1));
  try {
    const allowed = payload.request.allowedDecisions;
    const answer = await approver.call("exec.approval.resolve", { id: payload.id, decision });
    console.log(JSON.stringify({ id: payload.id, allowed, answer }));
  } catch (error) {
    console.log(JSON.stringify({ id: payload.id, error }));
  }
  process.exit(0);
});
fs.writeFileSync(ready, "");
setTimeout(() => {
  console.log("nothing was asked");
  process.exit(1);
}, 60_000);
