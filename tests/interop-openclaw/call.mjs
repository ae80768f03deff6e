// One request to a gateway on this machine, as its own tools make it: call.mjs PORT TOKEN METHOD PARAMS.
// Prints the payload, or the error and fails.
const [port, token, method, params] = process.argv.slice(2);
const socket = new WebSocket(`ws://127.0.0.1:${port}/`);
const send = (id, method, params) =>
  socket.send(JSON.stringify({ type: "req", id, method, params }));
setTimeout(() => end(1, "no answer"), 60_000);

function end(code, text) {
  console.log(text);
  process.exit(code);
}

socket.onerror = () => end(1, "no connection");
socket.onmessage = ({ data }) => {
  const frame = JSON.parse(data);
  if (frame.event === "connect.challenge") {
    send("connect", "connect", {
      minProtocol: 4,
      maxProtocol: 4,
      client: { id: "gateway-client", mode: "backend", version: "1", platform: "linux" },
      role: "operator",
      scopes: ["operator.admin", "operator.approvals", "operator.pairing", "operator.read", "operator.write"],
      caps: [],
      auth: { token },
    });
  } else if (frame.type === "res" && !frame.ok) {
    end(1, JSON.stringify(frame.error));
  } else if (frame.id === "connect") {
    send("call", method, JSON.parse(params));
  } else if (frame.id === "call") {
    end(0, JSON.stringify(frame.payload));
  }
};
