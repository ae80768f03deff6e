// Drives a gateway with both lines of the TypeScript SDK: every door, every era. Prints
// `ok SDK DOOR ERA` for each.

import assert from "node:assert/strict";
import fs from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

const settings = JSON.parse(process.argv[2]);
const load = createRequire(settings.modules + "/");

const first = {
  ...load("@modelcontextprotocol/sdk/client/index.js"),
  ...load("@modelcontextprotocol/sdk/client/stdio.js"),
  ...load("@modelcontextprotocol/sdk/client/streamableHttp.js"),
  elicitation: load("@modelcontextprotocol/sdk/types.js").ElicitRequestSchema,
  logging: load("@modelcontextprotocol/sdk/types.js").LoggingMessageNotificationSchema,
  call: (client, params, options) => client.callTool(params, undefined, options),
};
const second = {
  ...load("@modelcontextprotocol/client"),
  ...load("@modelcontextprotocol/client/stdio"),
  elicitation: "elicitation/create",
  logging: "notifications/message",
  call: (client, params, options) => client.callTool(params, options),
};

function transport(sdk, door) {
  if (door === "http") {
    const headers = { Authorization: `Bearer ${settings.token}` };
    return new sdk.StreamableHTTPClientTransport(new URL(settings.url), { requestInit: { headers } });
  }
  return new sdk.StdioClientTransport({
    command: settings.binary,
    args: ["--state-dir", settings.state, "mcp", "--no-spawn", "--elicitation"],
    cwd: settings.work,
    env: { HOME: settings.home, PATH: "/usr/bin:/bin" },
  });
}

function isAlive(pid) {
  try {
    return !fs.readFileSync(`/proc/${pid}/stat`, "utf8").split(") ").pop().startsWith("Z");
  } catch {
    return false;
  }
}

async function eventually(what, holds) {
  for (let turn = 0; turn < 6000; turn += 1) {
    if (holds()) return;
    await sleep(10);
  }
  assert.fail(`never came true: ${what}`);
}

async function check(sdk, client, person, name) {
  const call = (tool, args, options) => sdk.call(client, { name: tool, arguments: args }, options);
  const { tools } = await client.listTools();
  assert.deepEqual(tools.map((tool) => tool.name), ["exec", "process", "apply_patch"]);
  assert.ok(tools.every((tool) => tool.outputSchema && tool.annotations.destructiveHint));

  let result = await call("exec", { command: "echo hello" });
  assert.match(result.content[0].text, /^exit code 0, .*\n\nhello$/s);
  assert.ok(!JSON.stringify(result.structuredContent).includes("hello"));
  assert.equal(result.structuredContent.exitCode, 0);

  result = await call("exec", { command: "echo seen; sleep 600", background: true });
  const sessionId = result.structuredContent.sessionId;
  result = await call("process", { action: "poll", sessionId, timeout: 5000 });
  assert.match(result.content[0].text, /seen/);
  const log = await client.readResource({ uri: `interlock://sessions/${sessionId}/log` });
  assert.match(log.contents[0].text, /seen/);
  await call("process", { action: "remove", sessionId });

  const input = `*** Begin Patch\n*** Add File: ${name}.txt\n+text\n*** End Patch\n`;
  result = await call("apply_patch", { input });
  assert.equal(result.structuredContent.status, "completed");

  const told = [];
  const go = path.join(settings.root, `${name}-go`);
  const slow = call(
    "exec",
    { command: `echo first; while [ ! -e ${go} ]; do sleep 0.01; done` },
    { onprogress: (progress) => told.push(progress.message) },
  );
  await eventually("progress", () => told.some((message) => message.includes("first")));
  fs.writeFileSync(go, "");
  assert.equal((await slow).structuredContent.exitCode, 0);

  if (name.endsWith("-legacy")) {
    // The eras with sessions tell of what happens in them.
    const end = path.join(settings.root, `${name}-end`);
    const behind = `while [ ! -e ${end} ]; do sleep 0.01; done; echo over`;
    await call("exec", { command: behind, background: true });
    fs.writeFileSync(end, "");
    // The session that was removed may be told of as well.
    const ends = () => person.logged.filter((event) => /over$/.test(event.text));
    await eventually("an event", () => ends().length > 0);
    assert.deepEqual(ends().map((event) => event.kind), ["exec-finished"]);
    result = await call("exec", { command: "echo next" });
    const ids = result.structuredContent.events.map((event) => event.id);
    assert.ok(ids.includes(ends()[0].id), ids);
  }

  const pidFile = path.join(settings.root, `${name}-pid`);
  const abort = new AbortController();
  const command = `echo $$ > ${pidFile}; exec sleep 600`;
  const long = call("exec", { command, yieldMs: 120000 }, { signal: abort.signal });
  const rejected = assert.rejects(long);
  const pid = () => (fs.existsSync(pidFile) ? fs.readFileSync(pidFile, "utf8").trim() : "");
  await eventually("a start", () => pid() !== "");
  assert.ok(isAlive(pid()));
  abort.abort("enough");
  await rejected;
  await eventually("an end", () => !isAlive(pid()));

  const asked = { command: `echo asked ${name}`, ask: "always" };
  person.answer = { action: "accept", content: { decision: "allow-once" } };
  result = await call("exec", asked);
  assert.ok(result.content[0].text.endsWith(`\n\nasked ${name}`), result.content[0].text);
  assert.ok(person.shown.at(-1).includes(`echo asked ${name}`));
  person.answer = { action: "decline" };
  result = await call("exec", asked);
  assert.equal(result.structuredContent.code, "APPROVAL_DENIED");
}

const rows = [
  ["1", first, "legacy", {}],
  ["2", second, "legacy", { versionNegotiation: { mode: "legacy" } }],
  ["2", second, "2026-07-28", { versionNegotiation: { mode: { pin: "2026-07-28" } } }],
  ["2", second, "auto", { versionNegotiation: { mode: "auto" } }],
];
for (const [line, sdk, era, options] of rows) {
  for (const door of ["http", "stdio"]) {
    const capabilities = { elicitation: { form: {} } };
    const client = new sdk.Client({ name: "typescript", version: line }, { capabilities, ...options });
    const person = { answer: undefined, shown: [], logged: [] };
    client.setRequestHandler(sdk.elicitation, async (request) => {
      person.shown.push(request.params.message);
      return person.answer;
    });
    client.setNotificationHandler(sdk.logging, (notification) => {
      person.logged.push(notification.params.data);
    });
    await client.connect(transport(sdk, door));
    await check(sdk, client, person, `typescript-${line}-${door}-${era}`);
    await client.close();
    console.log("ok", line, door, era);
  }
}
