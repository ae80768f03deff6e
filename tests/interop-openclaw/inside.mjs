// Loaded into a gateway of OpenClaw (node --import): offers the gateway's own tool `exec` on a Unix socket. Only there is
// it whole: the tool shows a secret of the gateway's process to see its own approvals. No other way leads to it without
// a model. EXEC_PORT is the gateway's port, EXEC_SOCKET the socket, EXEC_DIST the directory of the program.
import fs from "node:fs";
import http from "node:http";
import net from "node:net";
import path from "node:path";
import { pathToFileURL } from "node:url";

const { EXEC_SOCKET, EXEC_PORT, EXEC_DIST } = process.env;
const listen = net.Server.prototype.listen;
let isOffered = false;

// The program starts itself as several processes: the one that listens on the port is the gateway.
net.Server.prototype.listen = function (...args) {
  const port = typeof args[0] === "object" && args[0] !== null ? args[0].port : args[0];
  if (!isOffered && Number(port) === Number(EXEC_PORT)) {
    isOffered = true;
    offer();
  }
  return listen.apply(this, args);
};

async function tool(options) {
  const file = fs.readdirSync(EXEC_DIST).find((name) => /^bash-tools-[\w-]+\.(mjs|js)$/.test(name));
  const exported = await import(pathToFileURL(path.join(EXEC_DIST, file)));
  return Object.values(exported).find((one) => one.name === "createExecTool")(options);
}

function offer() {
  const server = http.createServer(async (request, response) => {
    let body = "";
    for await (const part of request) body += part;
    let answer;
    try {
      const { options, args } = JSON.parse(body);
      answer = await (await tool(options)).execute("call", args);
    } catch (error) {
      answer = { error: String(error?.message ?? error) };
    }
    response.end(JSON.stringify(answer));
  });
  listen.call(server, EXEC_SOCKET);
}
