"""One client's attacks on a gateway, in a process of their own and from an address of their own."""

import asyncio
import io
import json
import sys
import time
import zipfile
from collections import Counter
from typing import Any

import httpx

ADDRESS = "127.0.0.2"
PAIR = {"source": "en", "target": "de"}
TEXT = "The coffee tastes good, and the house is by the river."
JSON = {"content-type": "application/json"}


def _file(name: str, content: bytes) -> dict[str, Any]:
    return {"url": "/translate_file", "data": PAIR, "files": {"file": (name, content)}}


def _texts(**body: Any) -> dict[str, Any]:
    return {
        "url": "/translate",
        "content": json.dumps(PAIR | body, separators=(",", ":")).encode(),
        "headers": JSON,
    }


def _nested() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        runs = "<w:p>" * 250 + "<w:r><w:t>a</w:t></w:r>" * 20_000 + "</w:p>" * 250
        archive.writestr("word/document.xml", f"<w:document><w:body>{runs}</w:body></w:document>")
    return file.getvalue()


ATTACKS: dict[str, tuple[dict[str, Any], int]] = {
    "zeros": (_file("a.json", b'{"k": "a %' + b"0" * 200_000 + b'"}'), 20),
    "nested": (_file("a.docx", _nested()), 20),
    "comments": (_file("a.xml", b"<resources>" + b"<!--" * 200_000), 20),
    "markdown": (_file("a.md", b"".join(b"`" * n + b"a " for n in range(800))), 20),
    "page": (_texts(q="<p>The <b>coffee</b> tastes good.</p>" * 9_000, format="html"), 20),
    "unused": (_texts(q=TEXT, unused=[[]] * 330_000), 20),
    "values": (_texts(q=TEXT, unused=[[]] * 24_000), 50),
    "texts": (_texts(q=["a"] * 19_000), 50),
    "arrays": (_texts(q=[TEXT] * 1000), 200),
    "crowd": (_texts(q=[TEXT] * 1000), 500),
    "auto": (_texts(q=[TEXT] * 1000, source="auto"), 200),
    "long": (_texts(q=f"{TEXT} " * 15_000), 20),
}
"""Requests by their names, and how many are sent at a time."""


async def main(name: str, url: str, seconds: float) -> None:
    """Sends requests until the time is over, and prints their outcomes as JSON."""
    request, count = ATTACKS[name]
    outcomes: Counter[str] = Counter()
    until_s = time.monotonic() + seconds
    transport = httpx.AsyncHTTPTransport(
        local_address=ADDRESS, limits=httpx.Limits(max_connections=count)
    )

    async def send(client: httpx.AsyncClient) -> None:
        while time.monotonic() < until_s:
            try:
                answer = await client.post(**request)
                outcomes[str(answer.status_code)] += 1
                # Somebody who is refused tries again, a little later.
                await asyncio.sleep(0.1 if answer.is_error else 0)
            except httpx.HTTPError as error:
                outcomes[type(error).__name__] += 1
                await asyncio.sleep(0.1)

    async with httpx.AsyncClient(base_url=url, transport=transport, timeout=40.0) as client:
        tasks = [asyncio.create_task(send(client)) for _ in range(count)]
        await asyncio.wait(tasks, timeout=seconds + 1)
        outcomes["unanswered"] = sum(not task.done() for task in tasks)
        for task in tasks:
            task.cancel()
    print(json.dumps(outcomes))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3])))
