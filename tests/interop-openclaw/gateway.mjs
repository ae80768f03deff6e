// A connection to a gateway on this machine, as its own tools make it. With the WebSocket of the installed
// packages: that of Node misses a challenge that comes together with the answer to the upgrade.
import { createRequire } from "node:module";

const WebSocket = createRequire(`${process.env.PACKAGES}/`)("ws");

export function connect(port, token, onEvent = () => {}) {
  const socket = new WebSocket(`ws://127.0.0.1:${port}/`);
  const waiting = new Map();
  let count = 0;
  const call = (method, params) =>
    new Promise((resolve, reject) => {
      const id = `${++count}`;
      waiting.set(id, { resolve, reject });
      socket.send(JSON.stringify({ type: "req", id, method, params }));
    });
  return new Promise((resolve, reject) => {
    setTimeout(() => reject({ message: "no answer" }), 60_000).unref();
    socket.onerror = () => reject({ message: "no connection" });
    socket.onmessage = async ({ data }) => {
      const frame = JSON.parse(data);
      if (frame.event === "connect.challenge") {
        const hello = call("connect", {
          minProtocol: 4,
          maxProtocol: 4,
          client: { id: "gateway-client", mode: "backend", version: "1", platform: "linux" },
          role: "operator",
          scopes: ["operator.admin", "operator.approvals", "operator.pairing", "operator.read", "operator.write"],
          caps: ["exec-approvals"],
          auth: { token },
        });
        hello.then(() => resolve({ call }), reject);
      } else if (frame.type === "event") {
        onEvent(frame.event, frame.payload);
      } else if (frame.payload?.status !== "accepted") {
        const { resolve, reject } = waiting.get(frame.id) ?? {};
        if (frame.ok) resolve?.(frame.payload);
        else reject?.(frame.error);
      }
    };
  });
}

// Prints what came of it, and ends.
export async function end(outcome) {
  try {
    console.log(JSON.stringify(await outcome));
    process.exit(0);
  } catch (error) {
    console.log(JSON.stringify(error));
    process.exit(1);
  }
}
