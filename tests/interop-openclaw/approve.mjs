// Asks for an approval on one connection and allows it once on another: approve.mjs PORT TOKEN PARAMS.
import { connect, end } from "./gateway.mjs";

const [port, token, params] = process.argv.slice(2);
const approver = await connect(port, token, (event, payload) => {
  if (event === "exec.approval.requested") {
    approver.call("exec.approval.resolve", { id: payload.id, decision: "allow-once" });
  }
});
end(connect(port, token).then((asking) => asking.call("exec.approval.request", JSON.parse(params))));
