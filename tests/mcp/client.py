"""Drives a gateway with the Python SDK: every door, every era. Prints `ok DOOR ERA` for each."""

import asyncio
import json
import os
import sys

import httpx2
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitResult

SETTINGS = json.loads(sys.argv[1])
PATCH = "*** Begin Patch\n*** Add File: {}\n+text\n*** End Patch\n"


class Person:
    """Who sits at the client: answers as told, and remembers what was shown and logged."""

    def __init__(self):
        self.answer, self.shown, self.logged = None, [], []

    async def log(self, params):
        self.logged.append(params.data)

    async def __call__(self, _context, params):
        self.shown.append(params.message)
        return self.answer


def transport(door):
    if door == "http":
        client = httpx2.AsyncClient(
            headers={"Authorization": f"Bearer {SETTINGS['token']}"}, timeout=60
        )
        return streamable_http_client(SETTINGS["url"], http_client=client)
    return stdio_client(
        StdioServerParameters(
            command=SETTINGS["binary"],
            args=["--state-dir", SETTINGS["state"], "mcp", "--no-spawn", "--elicitation"],
            cwd=SETTINGS["work"],
            env={"HOME": SETTINGS["home"], "PATH": "/usr/bin:/bin"},
        )
    )


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as stat:
            return not stat.read().rsplit(") ", 1)[1].startswith("Z")
    except OSError:
        return False


async def eventually(what, holds):
    for _ in range(6000):
        if holds():
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"never came true: {what}")


async def check(client, person, name):
    tools = (await client.list_tools()).tools
    assert [tool.name for tool in tools] == ["exec", "process", "apply_patch"], tools
    assert all(tool.output_schema and tool.annotations.destructive_hint for tool in tools)

    result = await client.call_tool("exec", {"command": "echo hello"})
    status, output = result.content[0].text.split("\n\n", 1)
    assert status.startswith("exit code 0, ") and output == "hello" and not result.is_error, result
    assert result.structured_content["exitCode"] == 0, result
    assert "hello" not in json.dumps(result.structured_content), result

    started = await client.call_tool("exec", {"command": "echo seen; sleep 600", "background": True})
    session = started.structured_content["sessionId"]
    polled = await client.call_tool("process", {"action": "poll", "sessionId": session, "timeout": 5000})
    assert "seen" in polled.content[0].text, polled
    log = await client.read_resource(f"interlock://sessions/{session}/log")
    assert "seen" in log.contents[0].text, log
    await client.call_tool("process", {"action": "remove", "sessionId": session})

    patched = await client.call_tool("apply_patch", {"input": PATCH.format(f"{name}.txt")})
    assert patched.structured_content["status"] == "completed", patched

    wrong = await client.call_tool("exec", {"command": 1})
    assert wrong.is_error and wrong.structured_content["field"] == "command", wrong

    told = []

    async def progress(_done, _total, message):
        told.append(message)

    go = os.path.join(SETTINGS["root"], f"{name}-go")
    slow = {"command": f"echo first; while [ ! -e {go} ]; do sleep 0.01; done"}
    call = asyncio.create_task(client.call_tool("exec", slow, progress_callback=progress))
    await eventually("progress", lambda: any("first" in message for message in told))
    with open(go, "w", encoding="utf-8"):
        pass
    assert (await call).structured_content["exitCode"] == 0

    if name.endswith("-legacy"):
        # The eras with sessions tell of what happens in them.
        end = os.path.join(SETTINGS["root"], f"{name}-end")
        behind = f"while [ ! -e {end} ]; do sleep 0.01; done; echo over"
        await client.call_tool("exec", {"command": behind, "background": True})
        with open(end, "w", encoding="utf-8"):
            pass
        # The session that was removed may be told of as well.
        ends = lambda: [event for event in person.logged if event["text"].endswith("over")]
        await eventually("an event", ends)
        assert len(ends()) == 1 and ends()[0]["kind"] == "exec-finished", person.logged
        result = await client.call_tool("exec", {"command": "echo next"})
        events = result.structured_content["events"]
        assert ends()[0]["id"] in [event["id"] for event in events], events

    pid_file = os.path.join(SETTINGS["root"], f"{name}-pid")
    command = f"echo $$ > {pid_file}; exec sleep 600"
    call = asyncio.create_task(client.call_tool("exec", {"command": command, "yieldMs": 120000}))
    await eventually("a start", lambda: os.path.exists(pid_file) and os.path.getsize(pid_file))
    with open(pid_file, encoding="utf-8") as file:
        pid = file.read().strip()
    assert is_alive(pid)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    await eventually("an end", lambda: not is_alive(pid))

    asked = {"command": f"echo asked {name}", "ask": "always"}
    person.answer = ElicitResult(action="accept", content={"decision": "allow-once"})
    result = await client.call_tool("exec", asked)
    assert result.content[0].text.endswith(f"\n\nasked {name}"), result
    assert f"echo asked {name}" in person.shown[-1], person.shown
    person.answer = ElicitResult(action="decline")
    result = await client.call_tool("exec", asked)
    assert result.is_error and result.structured_content["code"] == "APPROVAL_DENIED", result


async def main():
    for door in ("http", "stdio"):
        for era in ("legacy", "2026-07-28", "auto"):
            person = Person()
            async with Client(
                transport(door), mode=era, elicitation_callback=person, logging_callback=person.log
            ) as client:
                await check(client, person, f"python-{door}-{era}")
                print("ok", door, era, client.protocol_version, flush=True)


asyncio.run(main())
