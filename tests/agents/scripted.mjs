// A model server for agents under test: it plays a model that makes the calls of a script, one after the other, and then
// tells what the last one said. No dependencies, loopback only.
//
//   node scripted.mjs SCRIPT LOG        prints the port that it listens on
//
// SCRIPT is a JSON list of calls: { "tool": "exec", "input": { … } } calls Interlock's tool of that name, { "own": "Bash", … }
// calls a tool of the agent itself. SESSION in a text stands for the background session that an earlier
// result named.
//
// It speaks what the four agents speak, as streams of server-sent events: the OpenAI Responses API (Codex), the Anthropic
// Messages API (Claude Code), the Gemini API (Gemini CLI) and the OpenAI Chat Completions API (opencode). Requests that
// offer no tools (titles, model choice) get a word. LOG gets a line of JSON for each request: the tools that were offered,
// and the results of the calls so far.
import { appendFileSync, readFileSync } from "node:fs";
import { createServer } from "node:http";

const [script, log] = process.argv.slice(2);
const calls = JSON.parse(readFileSync(script, "utf8"));
const text = (content) => (typeof content === "string" ? content : JSON.stringify(content ?? ""));
// A model that repeats long monotonous output is stopped by Gemini CLI as caught in a loop.
const clipped = (result) => (result.length > 4000 ? `${result.slice(0, 150)} … ${result.slice(-150)}` : result);
const idOf = (index) => `call_scripted_${index}`;

// What comes next: a call, or the last text. `offered` are names, `results` what the calls so far gave.
function next(offered, results) {
  const call = calls[results.length];
  if (offered.length === 0) return { say: "a title" };
  if (!call) return { say: `The tool said: ${clipped(results.at(-1))}` };
  const isIt = call.own ? (name) => name === call.own : (name) => new RegExp(`interlock.*${call.tool}$`).test(name);
  const name = offered.find(isIt);
  if (!name) return { say: `no tool ${call.own ?? call.tool} was offered` };
  const session = results.join("\n").match(/session(?:Id)?[\\"':\s=]+([a-z0-9]+(?:-[a-z0-9]+)+)/i)?.[1];
  const input = JSON.parse(JSON.stringify(call.input).replaceAll("SESSION", session ?? "SESSION"));
  return { name, id: idOf(results.length), input };
}

// The results in the order of the calls, from a map of call ids to results.
const inOrder = (found) => calls.map((_, index) => found.get(idOf(index))).filter((result) => result !== undefined);
const sse = (events) => events.map((event) => `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`).join("");
const data = (events) => events.map((event) => `data: ${typeof event === "string" ? event : JSON.stringify(event)}\n\n`).join("");

function responses(request) {
  const flat = (request.tools ?? []).flatMap((tool) =>
    tool.type === "namespace" ? tool.tools.map((inner) => ({ name: inner.name, namespace: tool.name })) : [tool],
  );
  const names = flat.map((tool) => (tool.namespace ? `${tool.namespace}__${tool.name}` : (tool.name ?? tool.type)));
  const items = Array.isArray(request.input) ? request.input : [];
  const outputs = items.filter((item) => item.type === "function_call_output");
  const results = inOrder(new Map(outputs.map((item) => [item.call_id, text(item.output)])));
  const step = next(names, results);
  const tool = step.name && flat[names.indexOf(step.name)];
  const item = tool
    ? { type: "function_call", id: `fc_${step.id}`, call_id: step.id, name: tool.name, namespace: tool.namespace, arguments: JSON.stringify(step.input) }
    : { type: "message", role: "assistant", id: "msg_1", content: [{ type: "output_text", text: step.say }] };
  const usage = { input_tokens: 1, input_tokens_details: null, output_tokens: 1, output_tokens_details: null, total_tokens: 2 };
  return {
    names,
    results,
    body: sse([
      { type: "response.created", response: { id: "resp_1" } },
      { type: "response.output_item.done", output_index: 0, item },
      { type: "response.completed", response: { id: "resp_1", usage } },
    ]),
  };
}

function messages(request) {
  const names = (request.tools ?? []).map((tool) => tool.name);
  const blocks = request.messages.flatMap((message) => (Array.isArray(message.content) ? message.content : []));
  const outputs = blocks.filter((block) => block.type === "tool_result");
  const results = inOrder(new Map(outputs.map((block) => [block.tool_use_id, text(block.content)])));
  const step = next(names, results);
  const block = step.name ? { type: "tool_use", id: step.id, name: step.name, input: {} } : { type: "text", text: "" };
  const delta = step.name
    ? { type: "input_json_delta", partial_json: JSON.stringify(step.input) }
    : { type: "text_delta", text: step.say };
  const message = { id: "msg_1", type: "message", role: "assistant", model: request.model, content: [], stop_reason: null, stop_sequence: null, usage: { input_tokens: 1, output_tokens: 1 } };
  return {
    names,
    results,
    body: sse([
      { type: "message_start", message },
      { type: "content_block_start", index: 0, content_block: block },
      { type: "content_block_delta", index: 0, delta },
      { type: "content_block_stop", index: 0 },
      { type: "message_delta", delta: { stop_reason: step.name ? "tool_use" : "end_turn", stop_sequence: null }, usage: { output_tokens: 1 } },
      { type: "message_stop" },
    ]),
  };
}

function completions(request) {
  const names = (request.tools ?? []).map((tool) => tool.function.name);
  const outputs = request.messages.filter((message) => message.role === "tool");
  const results = inOrder(new Map(outputs.map((message) => [message.tool_call_id, text(message.content)])));
  const step = next(names, results);
  const delta = step.name
    ? { role: "assistant", tool_calls: [{ index: 0, id: step.id, type: "function", function: { name: step.name, arguments: JSON.stringify(step.input) } }] }
    : { role: "assistant", content: step.say };
  const chunk = (choice) => ({ id: "chat_1", object: "chat.completion.chunk", created: 1, model: request.model, choices: [{ index: 0, ...choice }] });
  const end = { ...chunk({ delta: {}, finish_reason: step.name ? "tool_calls" : "stop" }), usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 } };
  return { names, results, body: data([chunk({ delta, finish_reason: null }), end, "[DONE]"]) };
}

function gemini(request, isStream) {
  const names = (request.tools ?? []).flatMap((tool) => tool.functionDeclarations ?? []).map((tool) => tool.name);
  const parts = (request.contents ?? []).flatMap((content) => content.parts ?? []);
  // Ids of calls do not come back from every version: the order does.
  const outputs = parts.filter((part) => part.functionResponse).map((part) => text(part.functionResponse.response));
  const step = next(names, outputs);
  const part = step.name
    ? { functionCall: { id: step.id, name: step.name, args: step.input }, thoughtSignature: "c2NyaXB0ZWQ=" }
    : { text: names.length ? step.say : '{"complexity_reasoning":"x","complexity_score":1,"model_choice":"flash","reasoning":"x"}' };
  const answer = {
    candidates: [{ content: { role: "model", parts: [part] }, finishReason: "STOP", index: 0 }],
    usageMetadata: { promptTokenCount: 1, candidatesTokenCount: 1, totalTokenCount: 2 },
  };
  return { names, results: outputs, body: isStream ? data([answer]) : JSON.stringify(answer) };
}

function answer(path, request) {
  if (path === "/v1/responses") return responses(request);
  if (path === "/v1/messages") return messages(request);
  if (path === "/v1/chat/completions") return completions(request);
  if (path.endsWith(":streamGenerateContent")) return gemini(request, true);
  if (path.endsWith(":generateContent")) return gemini(request, false);
  return undefined;
}

const server = createServer(async (request, response) => {
  const path = request.url.split("?")[0];
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  let answered;
  if (request.method === "POST") {
    try {
      answered = answer(path, JSON.parse(Buffer.concat(chunks)));
    } catch (error) {
      appendFileSync(log, `${JSON.stringify({ failed: String(error), path })}\n`);
    }
  }
  if (!answered) {
    appendFileSync(log, `${JSON.stringify({ refused: `${request.method} ${request.url}` })}\n`);
    response.writeHead(404, { "content-type": "application/json" }).end('{"error":{"message":"not served here"}}');
    return;
  }
  const { names, results, body } = answered;
  appendFileSync(log, `${JSON.stringify({ path, offered: names, results })}\n`);
  const type = body.startsWith("{") ? "application/json" : "text/event-stream";
  response.writeHead(200, { "content-type": type }).end(body);
});
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
