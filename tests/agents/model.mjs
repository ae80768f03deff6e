// A model server for agents under test: it plays a model that calls interlock's `exec` once and then
// tells what came back. No dependencies, loopback only.
//
//   node model.mjs COMMAND LOG        prints the port that it listens on
//
// It speaks what the two agents speak, as streams of server-sent events: the OpenAI Responses API
// (`/v1/responses`) and the Anthropic Messages API (`/v1/messages`). A request whose conversation
// holds the result of the call gets text, any other one that offers the tool gets the call. LOG gets a
// line of JSON for each request: whether the tool was offered, and its result.
import { appendFileSync } from "node:fs";
import { createServer } from "node:http";

const [command, log] = process.argv.slice(2);
const input = { command };
const callId = "call_interlock_1";
const said = (result) => `The tool said: ${result}`;

// The one tool that is interlock's `exec`, whatever the agent calls it.
const isExec = (name) => /interlock.*exec$/.test(name);
const text = (content) => (typeof content === "string" ? content : JSON.stringify(content ?? ""));

function responses(request) {
  const flat = (request.tools ?? []).flatMap((tool) =>
    tool.type === "namespace" ? tool.tools.map((inner) => ({ ...inner, namespace: tool.name })) : [tool],
  );
  const tool = flat.find((tool) => isExec(`${tool.namespace ?? ""}${tool.name}`));
  const items = Array.isArray(request.input) ? request.input : [];
  const output = items.find((item) => item.type === "function_call_output" && item.call_id === callId);
  const item = output
    ? { type: "message", role: "assistant", id: "msg_1", content: [{ type: "output_text", text: said(text(output.output)) }] }
    : tool
      ? { type: "function_call", id: "fc_1", call_id: callId, name: tool.name, namespace: tool.namespace, arguments: JSON.stringify(input) }
      : { type: "message", role: "assistant", id: "msg_0", content: [{ type: "output_text", text: "no exec tool was offered" }] };
  const usage = { input_tokens: 1, input_tokens_details: null, output_tokens: 1, output_tokens_details: null, total_tokens: 2 };
  const events = [
    { type: "response.created", response: { id: "resp_1" } },
    { type: "response.output_item.done", output_index: 0, item },
    { type: "response.completed", response: { id: "resp_1", usage } },
  ];
  return { offered: Boolean(tool), result: output && text(output.output), events };
}

function messages(request) {
  const name = (request.tools ?? []).map((tool) => tool.name).find(isExec);
  const blocks = request.messages.flatMap((message) => (Array.isArray(message.content) ? message.content : []));
  const output = blocks.find((block) => block.type === "tool_result" && block.tool_use_id === callId);
  const calls = !output && name;
  const block = calls
    ? { type: "tool_use", id: callId, name, input: {} }
    : { type: "text", text: "" };
  const delta = calls
    ? { type: "input_json_delta", partial_json: JSON.stringify(input) }
    : { type: "text_delta", text: output ? said(text(output.content)) : "no exec tool was offered" };
  const message = { id: "msg_1", type: "message", role: "assistant", model: request.model, content: [], stop_reason: null, stop_sequence: null, usage: { input_tokens: 1, output_tokens: 1 } };
  const events = [
    { type: "message_start", message },
    { type: "content_block_start", index: 0, content_block: block },
    { type: "content_block_delta", index: 0, delta },
    { type: "content_block_stop", index: 0 },
    { type: "message_delta", delta: { stop_reason: calls ? "tool_use" : "end_turn", stop_sequence: null }, usage: { output_tokens: 1 } },
    { type: "message_stop" },
  ];
  return { offered: Boolean(name), result: output && text(output.content), events };
}

const apis = { "/v1/responses": responses, "/v1/messages": messages };
const server = createServer(async (request, response) => {
  const path = request.url.split("?")[0];
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const api = request.method === "POST" ? apis[path] : undefined;
  if (!api) {
    appendFileSync(log, `${JSON.stringify({ refused: `${request.method} ${request.url}` })}\n`);
    response.writeHead(404, { "content-type": "application/json" }).end('{"error":{"message":"not served here"}}');
    return;
  }
  const body = JSON.parse(Buffer.concat(chunks));
  const { offered, result, events } = api(body);
  appendFileSync(log, `${JSON.stringify({ path, offered, result })}\n`);
  response.writeHead(200, { "content-type": "text/event-stream" });
  for (const event of events) response.write(`event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`);
  response.end();
});
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
