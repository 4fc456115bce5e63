"""litellm: sync, async and streamed."""
import asyncio

import litellm

from client_lib import Server, check, main, run_text, same

Q, N = "Count from one to ten.", 20


def run():
    with Server("-c", "2048", "--parallel", "4") as s:
        more = dict(model="openai/any", api_base=f"http://127.0.0.1:{s.port}/v1", api_key="x", temperature=0, max_tokens=N,
                    messages=[{"role": "user", "content": Q}], num_retries=0)
        r = litellm.completion(**more)
        same("litellm: the text", r.choices[0].message.content, run_text(Q, N))
        check("litellm: usage", r.usage.completion_tokens <= N and r.usage.prompt_tokens > 0, r.usage)
        chunks = list(litellm.completion(**more, stream=True, stream_options={"include_usage": True}))
        same("litellm stream: the text", "".join(c.choices[0].delta.content or "" for c in chunks if c.choices), run_text(Q, N))
        whole = litellm.stream_chunk_builder(chunks)
        same("litellm stream: put together", whole.choices[0].message.content, run_text(Q, N))

        async def both():
            a = litellm.acompletion(**more)
            b = litellm.acompletion(**more, n=2)
            return await asyncio.gather(a, b)

        a, b = asyncio.run(both())
        same("litellm async: the texts", [c.message.content for c in a.choices + b.choices], [run_text(Q, N)] * 3)
        r = litellm.text_completion(model="text-completion-openai/any", prompt="one two three", max_tokens=8, temperature=0,
                                    api_base=f"http://127.0.0.1:{s.port}/v1", api_key="x")
        same("litellm: text completion", r.choices[0].text, run_text("one two three", 8, "--raw"))
        try:
            litellm.completion(**more | {"temperature": -3})
            check("litellm: an error", False, "no error")
        except litellm.BadRequestError as e:
            check("litellm: an error is BadRequestError", "temperature" in str(e), e)


main([run])
