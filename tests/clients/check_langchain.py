"""langchain-openai: invoke, stream, batch, tools, structured output."""
import asyncio

from langchain_core.messages import HumanMessage, SystemMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAI
from pydantic import BaseModel, ConfigDict, Field

from client_lib import Server, check, main, run_text, same

Q, Q2, N = "Count from one to ten.", "Name three animals.", 20


class Animal(BaseModel):
    """A living thing."""
    model_config = ConfigDict(extra="forbid")
    name: str = Field(max_length=12)
    legs: int = Field(ge=0, le=100)


@tool
def get_weather(city: str) -> str:
    """The weather of a city."""
    return "sunny in " + city


def run():
    with Server("-c", "2048", "--parallel", "4") as s:
        base = f"http://127.0.0.1:{s.port}/v1"
        m = ChatOpenAI(model="any", base_url=base, api_key="x", temperature=0, max_tokens=N, max_retries=0)
        r = m.invoke(Q)
        same("langchain: the text", r.content, run_text(Q, N))
        check("langchain: usage", r.usage_metadata["output_tokens"] <= N, r.usage_metadata)
        same("langchain stream: the text", "".join(c.content for c in m.stream(Q)), run_text(Q, N))
        same("langchain batch: the texts", [x.content for x in m.batch([Q, Q2])], [run_text(Q, N), run_text(Q2, N)])

        async def parts():
            return "".join([c.content async for c in m.astream([HumanMessage(Q)])])

        same("langchain async stream: the text", asyncio.run(parts()), run_text(Q, N))
        check("langchain: a system message", bool(m.invoke([SystemMessage("Be brief."), HumanMessage(Q)]).content))
        long = ChatOpenAI(model="any", base_url=base, api_key="x", temperature=0, max_tokens=120, max_retries=0)
        r = long.with_structured_output(Animal, method="json_schema").invoke("Describe a dog.")
        check("langchain: structured output by schema", isinstance(r, Animal), r)
        r = long.bind_tools([get_weather], tool_choice="get_weather", parallel_tool_calls=False).invoke("Weather in Paris?")
        check("langchain: a tool call", [c["name"] for c in r.tool_calls] == ["get_weather"] and
              isinstance(r.tool_calls[0]["args"]["city"], str), r)
        r = long.with_structured_output(Animal, method="function_calling").invoke("Describe a dog.")
        check("langchain: structured output by a call", isinstance(r, Animal), r)
        c = OpenAI(model="any", base_url=base, api_key="x", temperature=0, max_tokens=8, max_retries=0)
        same("langchain: completions", c.invoke("one two three"), run_text("one two three", 8, "--raw"))


main([run])
