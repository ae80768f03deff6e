// Passes connections on as a proxy does that says for whom: proxy.mjs PORT TARGET. A client that comes through it is
// not on this machine, as far as the gateway can tell.
import net from "node:net";
const [listen, target] = process.argv.slice(2).map(Number);
net.createServer((client) => {
  const server = net.connect(target, "127.0.0.1");
  let head = Buffer.alloc(0), done = false;
  client.on("data", (data) => {
    if (done) return server.write(data);
    head = Buffer.concat([head, data]);
    const end = head.indexOf("\r\n\r\n");
    if (end < 0) return;
    done = true;
    server.write(Buffer.concat([head.subarray(0, end), Buffer.from("\r\nX-Forwarded-For: 192.0.2.7"), head.subarray(end)]));
  });
  server.on("data", (data) => client.write(data));
  for (const [a, b] of [[client, server], [server, client]]) { a.on("close", () => b.destroy()); a.on("error", () => b.destroy()); }
}).listen(listen, "127.0.0.1");
