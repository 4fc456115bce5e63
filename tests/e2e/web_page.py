"""The chat page in a real browser, on a real server with the small pair. web_page.sh runs it.

    WEB_SHOTS=FOLDER   also leaves pictures of the page there
"""
import json
import os
import re
import sys
import time

import cdp
import serve_lib
from serve_lib import Server, chat, check, same

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
WEB = os.path.join(ROOT, "src", "server", "web")
SHOTS = os.environ.get("WEB_SHOTS")
QUESTION = "What is 17 + 25? Explain each step."
HOSTILE = """<img src=x onerror="window.pwned=1"> <script>window.pwned=1</script> <svg onload=window.pwned=1>

# <b onclick="window.pwned=1">head</b>

[a](javascript:window.pwned=1) [b](data:text/html,<script>window.pwned=1</script>) [c](//evil.example)
![d](http://127.0.0.1:9/p.png)
[e](https://ok.example/?q="onmouseover="window.pwned=1) <a href="javascript:window.pwned=1">f</a>

| <i onmouseover=window.pwned=1>x</i> | y |
|---|---|
| `<u>` | <iframe src="javascript:window.pwned=1"></iframe> |

- <style>*{display:none}</style>

```"><script>window.pwned=1</script>
</code></pre><script>window.pwned=1</script>
```
"""
RENDERED = [
    ("a *b* **c** ***d*** _e_ ~~f~~ `g`",
     "<p>a <em>b</em> <strong>c</strong> <strong><em>d</em></strong> <em>e</em> <del>f</del> <code>g</code></p>"),
    ("2 * 3 * 4 and snake_case_name", "<p>2 * 3 * 4 and snake_case_name</p>"),
    ("**a *b* c**", "<p><strong>a <em>b</em> c</strong></p>"),
    ("**open", "<p>**open</p>"),
    ("`a **b**` \\*c\\*", "<p><code>a **b**</code> *c*</p>"),
    ("`` a ` b ``", "<p><code>a ` b</code></p>"),
    ("one\ntwo\n\nthree", "<p>one<br>two</p><p>three</p>"),
    ("# a #\n### b", '<h3 class="h1">a</h3><h5 class="h3">b</h5>'),
    ("- a\n- b\n  - c\n- d", "<ul><li>a</li><li>b<ul><li>c</li></ul></li><li>d</li></ul>"),
    ("1. a\n2. b\n\n   more\n", "<ol><li><p>a</p></li><li><p>b</p><p>more</p></li></ol>"),
    ("3. a\n4. b", '<ol start="3"><li>a</li><li>b</li></ol>'),
    ("text\n- a", "<p>text</p><ul><li>a</li></ul>"),
    ("In\n1984. Then", "<p>In<br>1984. Then</p>"),
    ("- [x] done\n- [ ] not", "<ul><li>☑ done</li><li>☐ not</li></ul>"),
    ("> a\nb\n\nc", "<blockquote><p>a<br>b</p></blockquote><p>c</p>"),
    ("a\n\n---\n\nb", "<p>a</p><hr><p>b</p>"),
    ("| a | b |\n|---|--:|\n| 1 | 2 |\n| `x\\|y` |",
     '<div class="scroll" tabindex="0" role="region" aria-label="table"><table><thead><tr><th>a</th><th class="right">b</th>'
     '</tr></thead><tbody><tr><td>1</td><td class="right">2</td></tr><tr><td><code>x|y</code></td><td class="right"></td>'
     "</tr></tbody></table></div>"),
    ("see https://a.example/x_(y). End",
     '<p>see <a href="https://a.example/x_(y)" target="_blank" rel="noopener noreferrer nofollow">https://a.example/x_(y)</a>'
     ". End</p>"),
    ("[t *u*](http://a.example)",
     '<p><a href="http://a.example/" target="_blank" rel="noopener noreferrer nofollow">t *u*</a></p>'),
    ("[t](ftp://a.example) [u](javascript:x)", "<p>[t](ftp://a.example) [u](javascript:x)</p>"),
    ("<b>x</b> &amp;", "<p>&lt;b&gt;x&lt;/b&gt; &amp;amp;</p>"),
]
SLOW = ["*a " * 7000, "**a _b " * 3000, "[" * 20000, "[a](" * 5000, "`" * 20000, "`a ``b " * 3000, "> " * 10000, "- " * 10000,
        "|" * 20000, "| a " * 5000 + "\n" + "|-" * 5000 + "\n" + "| b " * 5000, "# " * 10000, "-" * 20000 + "x",
        "https://" * 2500, "_*" * 10000, "**" + "*a " * 7000 + "**", "1. a\n" * 4000, "```\n" + "x" * 20000, " " * 20000 + "a"]


def shoot(page, name):
    if SHOTS:
        os.makedirs(SHOTS, exist_ok=True)
        page.pump(0.4)
        page.shot(os.path.join(SHOTS, name + ".png"))


# ---- without a browser ----

def test_files(server):
    """The page is small, complete, loads nothing from elsewhere, and hands no text to the HTML parser."""
    for name in sorted(os.listdir(WEB)):
        with open(os.path.join(WEB, name), encoding="utf-8") as f:
            text = f.read()
        check(f"{name}: at most 600 lines", text.count("\n") <= 600)
        strangers = set(re.findall(r"(?:https?:)?//[\w.-]+\.\w+", text)) - {"http://www.w3.org"}
        same(f"{name}: addresses of other places", strangers, set())
        bad = re.findall(r"\b(?:innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval|Function\()", text)
        same(f"{name}: text handed to a parser", bad, [])
        reply = server.get("/" if name == "index.html" else "/web/" + name)
        same(f"{name}: served as it is", (reply.status, reply.text), (200, text))
        if name.endswith(".html"):
            for link in re.findall(r'(?:src|href)="([^"#]+)"', text):
                same(f"{name} links {link}", server.get("/" + link).status, 200)
        if name.endswith(".js"):
            for link in re.findall(r'from "\./([^"]+)"', text):
                check(f"{name} imports {link}", os.path.exists(os.path.join(WEB, link)))
    policy = server.get("/").headers["Content-Security-Policy"]
    check("the page's policy allows scripts of its own only", "default-src 'self'" in policy and "script-src" not in policy)


# ---- in the browser ----

def fresh(browser, server, width=1280, height=800):
    """A page with nothing stored."""
    page = browser.page("about:blank")
    page.call("Storage.clearDataForOrigin", origin=f"http://127.0.0.1:{server.port}", storageTypes="all")
    page.size(width, height)
    go(page, server)
    return page


def go(page, server):
    page.open(f"http://127.0.0.1:{server.port}/")
    page.wait("document.getElementById('model').textContent !== 'dflash'", 30, "the page knows its server")
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "web_probe.js"), encoding="utf-8") as f:
        page.js(f.read() + "; 0")


def setting(page, name, value):
    page.js(f"""(() => {{ const f = document.querySelector('[data-set={name}]');
      if (f.type === 'checkbox') f.checked = {json.dumps(value)}; else f.value = {json.dumps(value)};
      f.dispatchEvent(new Event('input')); }})()""")


def stored(page):
    """The conversation that was used last."""
    return page.js("JSON.parse(localStorage.getItem('dflash.chats'))")[0]


def idle(page, seconds=120):
    page.wait("document.getElementById('stop').hidden", seconds, "the answer ends")
    page.pump(0.1)


def ask(page, text):
    page.js("document.getElementById('input').focus()")
    page.type(text)
    page.press("Enter")
    idle(page)


def clean(page, what, allowed=()):
    left = [p for p in page.problems if not any(a in p for a in allowed)]
    same(f"{what}: nothing in the console", left, [])
    page.problems.clear()


def canned(steps, end="data: [DONE]\n\n", **delta):
    """A stream of our own: [(content, drafted, accepted, [(text, slot)...])...]"""
    out = []
    for text, drafted, accepted, tokens in steps:
        choice = {"index": 0, "delta": {**delta, "content": text}, "finish_reason": None,
                  "dflash": {"drafted": drafted, "accepted": accepted,
                             "tokens": [{"id": 1, "text": t, "slot": s} for t, s in tokens]}}
        out.append("data: " + json.dumps({"choices": [choice]}) + "\n\n")
    return 200, {"Content-Type": "text/event-stream"}, "".join(out) + end


def test_answer(browser, server):
    page = fresh(browser, server)
    check("the message box has the focus", page.js("document.activeElement.id") == "input")
    clean(page, "loading")
    shoot(page, "empty-light")
    for name, value in (("temperature", "0"), ("max_tokens", "60"), ("width", "5")):
        setting(page, name, value)
    ask(page, QUESTION)
    wanted = server.post("/v1/chat/completions", chat(QUESTION, max_tokens=60)).json["choices"][0]["message"]["content"]
    got = stored(page)["messages"]
    same("the streamed answer is the API's", got[1]["content"], wanted)
    same("its tokens are its text", "".join(got[1]["trace"]["text"]), wanted)
    same("the question is kept", got[0]["content"], QUESTION)
    flat = "el => el.textContent.replace(/[^\\w+=]/g, '')"
    shown = page.js(f"({flat})(document.querySelector('.md'))")
    same("the words on the page", shown, re.sub(r"[^\w+=]|^\d+\.", "", wanted, flags=re.M) if "1." in wanted else shown)
    check("there were drafts", got[1]["timings"]["draft_n_accepted"] > 0, got[1]["timings"])
    said = page.js("[...document.querySelectorAll('#announce p')].map(p => p.textContent)")
    check("screen readers hear the end of the text once", wanted.endswith("".join(said[:-1])[-20:]), said)
    check("and that it is complete", said[-1].startswith("Answer complete"), said)
    page.js("document.getElementById('show-drafts').click()")
    same("the tokens on the page", page.js("document.querySelector('.tokens').textContent"), wanted)
    slots = [s for s, t in zip(got[1]["trace"]["slot"], got[1]["trace"]["text"]) if t]
    classes = page.js("[...document.querySelectorAll('.tokens .tok')].map(t => t.className)")
    same("accepted drafts are coloured, others not", ["plain" not in c for c in classes], [s > 0 for s in slots])
    page.js("document.getElementById('compare').click()")
    idle(page)
    page.wait("!!document.getElementById('verdict')", 10)
    has = page.js("document.getElementById('verdict').textContent")
    check("with and without drafts: the same text", f"identical: {len(wanted)} characters" in has, has)
    figures = page.js("document.getElementById('compared').textContent")
    same("both speeds are shown", len(re.findall(r"[\d.]+ tok/s", figures)), 2)
    shoot(page, "drafts-light")
    page.media(prefers_color_scheme="dark")
    shoot(page, "drafts-dark")
    page.media()
    clean(page, "an answer")
    # a changed question, and another answer
    page.js("[...document.querySelectorAll('button')].find(b => b.title === 'Edit and send again').click()")
    page.js("document.activeElement.value = ''")
    page.type("Say hello.")
    page.press("Enter")
    idle(page)
    got = stored(page)["messages"]
    same("an edited question replaces what followed", [m["content"] for m in got if m["role"] == "user"], ["Say hello."])
    same("and is answered", len(got), 2)
    first = got[1]["request"]["seed"]
    page.js("[...document.querySelectorAll('button')].find(b => b.title === 'Answer again').click()")
    idle(page)
    again = stored(page)["messages"]
    same("another answer replaces the first", (len(again), again[1]["content"]), (2, got[1]["content"]))
    check("with a seed of its own", again[1]["request"]["seed"] != first)
    return page


def test_stop(browser, server):
    page = fresh(browser, server)
    setting(page, "max_tokens", "3000")
    before = server.metrics()["df_clients_gone_total"]
    page.type("Write a very long story about a ship.")
    page.press("Enter")
    page.wait("document.querySelector('.md')?.textContent.length > 60", 60)
    live = page.js("document.getElementById('strip').textContent")
    check("the speed of the moment is shown meanwhile", re.match(r"[\d.]+ tok/s · ", live), live)
    check("drafting and sending wait", page.js("document.getElementById('compare').disabled && "
                                               "document.getElementById('send').hidden"))
    page.press("Escape")
    idle(page, 5)
    check("the server has stopped too", server.wait_idle(10))
    same("it saw the client leave", server.metrics()["df_clients_gone_total"], before + 1)
    m = stored(page)["messages"][1]
    check("what came is kept", len(m["content"]) > 60 and m["finish"] == "stopped", m["finish"])
    text = page.js("document.querySelector('.msg.assistant').textContent")
    check("the page says that it was stopped", "stopped" in text, text)
    page.js("document.getElementById('compare').click()")
    idle(page)
    has = page.js("document.getElementById('verdict').textContent")
    check("a stopped answer is compared as far as it goes", "identical" in has, has)
    clean(page, "stopping")


def test_settings(browser, server):
    page = fresh(browser, server)
    wanted = {"system": "You are terse.", "temperature": "0.7", "top_p": "0.9", "seed": "42", "max_tokens": "5", "width": "4",
              "thinking": "off", "drafting": True, "theme": "dark"}
    for name, value in wanted.items():
        setting(page, name, value)
    go(page, server)
    got = page.js("Object.fromEntries([...document.querySelectorAll('[data-set]')].map(f => "
                  "[f.dataset.set, f.type === 'checkbox' ? f.checked : f.value]))")
    same("settings outlive a reload", got, wanted)
    same("the theme too", page.js("document.documentElement.dataset.theme"), "dark")
    seen = []
    page.intercept("*/v1/chat/completions", lambda r: seen.append(json.loads(r["postData"])) or None)
    ask(page, "Hi")
    page.release()
    body = seen[0]
    same("they are sent", {k: body.get(k) for k in ("temperature", "top_p", "seed", "max_tokens", "spec_width", "speculative")},
         {"temperature": 0.7, "top_p": 0.9, "seed": 42, "max_tokens": 5, "spec_width": 4, "speculative": True})
    same("the system prompt comes first", body["messages"],
         [{"role": "system", "content": "You are terse."}, {"role": "user", "content": "Hi"}])
    same("thinking is switched", body["chat_template_kwargs"], {"enable_thinking": False})
    again = server.post("/v1/chat/completions", {**body, "stream": False}).json
    same("a sampled answer is the API's with the same seed", stored(page)["messages"][1]["content"],
         again["choices"][0]["message"]["content"])
    setting(page, "drafting", False)
    ask(page, "And now?")
    same("drafting off is off", stored(page)["messages"][3]["timings"]["draft_n"], 0)
    go(page, server)
    same("the conversation outlives a reload", page.js("document.querySelectorAll('.msg').length"), 4)
    page.js("document.getElementById('new-chat').click()")
    ask(page, "Something else")
    same("there are two conversations", page.js("document.querySelectorAll('#chats li').length"), 2)
    same("saved as a file and read again", page.js("""(async () => {
      const s = await import('/web/store.js');
      const a = s.loadChats();
      return JSON.stringify(s.fromJson(s.asJson(a))) === JSON.stringify(a) && s.asMarkdown(a[0]).includes('Something else');
    })()"""), True)
    page.js("document.querySelector('#chats .here button[title^=Delete]').click()")
    same("one is deleted", page.js("document.querySelectorAll('#chats li').length"), 1)
    page.js("document.querySelector('#toast button').click()")
    same("and brought back", page.js("JSON.parse(localStorage.getItem('dflash.chats')).length"), 2)
    clean(page, "settings")
    page.js("""localStorage.setItem('dflash.chats', '[{"id":3,"messages":[{"role":"assistant","trace":{"text":7}},5,null]},7]');
      localStorage.setItem('dflash.settings', '{"theme":5,"temperature":{}}')""")
    go(page, server)
    clean(page, "a storage that others wrote into")


def test_markdown(browser, server):
    page = fresh(browser, server)
    render = """(async t => { const d = document.createElement('div');
      d.append((await import('/web/markdown.js')).renderMarkdown(t)); return d.innerHTML; })"""
    for source, wanted in RENDERED:
        same("markdown " + repr(source), page.js(f"{render}({json.dumps(source)})"), wanted)
    code = page.js(render + "('```c\\nint a = 1; // x\\n```')")
    for piece in ('<span class="hl-k">int</span>', '<span class="hl-n">1</span>', '<span class="hl-c">// x</span>'):
        check("code is coloured: " + piece, piece in code, code)
    same("a growing text is at all times what it is at once", page.js("probe.growing(300)"), None)
    for text in SLOW:
        start = time.monotonic()
        page.js(f"{render}({json.dumps(text)}).then(h => h.length)")
        check(f"no slow texts: {text[:12]!r}", time.monotonic() - start < 5, f"{time.monotonic() - start:.1f} s")
    clean(page, "markdown")


def test_hostile(browser, server):
    page = fresh(browser, server)
    tokens = [(HOSTILE[i:i + 7], i % 3) for i in range(0, len(HOSTILE), 7)]
    steps = [(t, 2, 1, [(t, s)]) for t, s in tokens]
    page.intercept("*/v1/chat/completions", lambda r: canned(steps, reasoning_content="<b>hm</b>"))
    ask(page, HOSTILE)
    page.release()
    for mode in ("as Markdown", "as tokens"):
        same(f"hostile text {mode}: nothing runs", page.js("window.pwned"), None)
        same(f"hostile text {mode}: no elements of its own", page.js(
            "[...document.querySelectorAll('.msg')].map(m => m.querySelectorAll('script,img,iframe,style,b,i,u,svg:not(.icon),"
            "[onclick],[onerror],[onload],[onmouseover]').length).join()"), "0,0")
        links = page.js("[...document.querySelectorAll('.msg a')].map(a => a.href)")
        check(f"hostile text {mode}: links are http", all(re.match(r"https?://", x) for x in links), links)
        page.js("document.getElementById('show-drafts').click()")
    same("the question is text", page.js("document.querySelector('.msg.user .body').textContent"), HOSTILE.strip())
    same("the tokens are text", page.js("document.querySelector('.tokens').textContent"), HOSTILE)
    text = page.js("document.querySelector('.md').textContent")
    for piece in ("<script>window.pwned=1</script>", "<img src=x onerror=", "[a](javascript:window.pwned=1)", "<iframe src="):
        check(f"the answer shows {piece}", piece in text, text)
    go(page, server)
    same("nor after a reload", page.js("window.pwned"), None)
    clean(page, "hostile text")


def test_figures(browser, server):
    """Counts, positions and failures from a stream whose numbers are known."""
    page = fresh(browser, server)
    steps = [("a b", 3, 3, [("a", 1), (" ", 2), ("b", 3), ("!", 0)]), ("c", 3, 1, [("c", 1), ("d", 0)]),
             ("e", 3, 0, [("e", 0)]), ("f", 0, 0, [("f", 0)])]
    page.intercept("*/v1/chat/completions", lambda r: canned(steps, reasoning_content="hm "))
    ask(page, "x")
    page.release()
    shares = page.js("[...document.querySelectorAll('#bars li')].map(l => l.textContent).join(' | ')")
    same("accepted by position", shares, "167 % | 233 % | 333 %")
    same("accept length", page.js("document.getElementById('fig-length').textContent"), "2.33")
    same("accepted of drafted", page.js("document.getElementById('fig-drafts').textContent"), "4 / 9")
    same("thinking is folded away", page.js("[document.querySelector('.thinking').hidden, document.querySelector('.thinking')"
                                            ".open, document.querySelector('.thinking div').textContent]"),
         [False, False, "hm " * 4])
    page.js("document.getElementById('show-drafts').click()")
    same("places", page.js("[...document.querySelectorAll('.tok[title]')].map(t => t.title)")[:5], [
        "drafted at position 1 of 3; 3 accepted in this step", "drafted at position 2 of 3; 3 accepted in this step",
        "drafted at position 3 of 3; 3 accepted in this step", "the target’s own, after 3 of 3 drafts",
        "drafted at position 1 of 3; 1 accepted in this step"])
    looks = page.js("""[1,2,3,4,5,6,7,8].map(i => { const e = document.createElement('span'); e.className = 'tok d' + i;
      document.body.append(e); const s = getComputedStyle(e);
      const look = s.textDecorationStyle + s.textDecorationThickness; e.remove(); return look; })""")
    same("no two places have the same underline", len(set(looks)), 8)
    for what, reply, wanted in (
            ("a stream without its end", canned(steps, end=""), "ended before the answer did"),
            ("an error in a stream", canned(steps, end='data: {"error": {"message": "no more pages", "code": 503}}\n\n'),
             "No more pages."),
            ("a refusal", (429, {"Content-Type": "application/json"}, '{"error": {"message": "the queue is full"}}'),
             "The queue is full."),
            ("a proxy's page", (502, {"Content-Type": "text/html"}, "<h1>Bad gateway</h1>"), "The server answered 502.")):
        page.intercept("*/v1/chat/completions", lambda r, reply=reply: reply)
        ask(page, "y")
        page.release()
        text = page.js("[...document.querySelectorAll('[role=alert]')].at(-1)?.textContent")
        check(f"{what} is told", text and wanted in text, text)
        same(f"{what}: nothing is waited for", page.js("document.querySelectorAll('.waiting').length"), 0)
    clean(page, "failures", ("Failed to load resource",))  # the browser's own line about 429 and 502


def test_key(browser, _server):
    with Server("--api-key", "open sesame") as server:
        page = browser.page(f"http://127.0.0.1:{server.port}/")
        page.wait("document.getElementById('key').open", 30, "a key is asked for")
        same("the key's field has the focus", page.js("document.activeElement.id"), "key-input")
        page.type("wrong")
        page.press("Enter")
        page.wait("document.getElementById('key').open && "
                  "document.getElementById('key-note').textContent.includes('not accept')", 10, "a wrong key is refused")
        page.type("open sesame")
        page.press("Enter")
        page.wait("document.getElementById('model').textContent !== 'dflash'", 30, "the right key opens")
        setting(page, "max_tokens", "5")
        ask(page, "Hi")
        check("and answers", len(stored(page)["messages"][1]["content"]) > 0)
        same("the key is not among what is kept for good", page.js("JSON.stringify(localStorage).includes('sesame')"), False)
        clean(page, "a key", ("401",))


def test_keyboard(browser, server):
    page = fresh(browser, server)
    setting(page, "max_tokens", "30")
    ask(page, "Write a list of **three** colours and `code`.")
    page.js("document.querySelector('.skip').focus()")
    path, rings = ["Skip to the message box"], []
    for _ in range(60):
        page.press("Tab")
        f = page.js("probe.focus()")
        if f["name"] in ("BODY", path[0]):
            break
        path.append(f["name"])
        if not f["ring"]:
            rings.append(f["name"])
    order = ["Skip to the message box", "new-chat", "show-drafts", "panel-open", "settings-open", "input", "strip", "compare"]
    at = [path.index(x) if x in path else -1 for x in order]
    check("Tab reaches everything in the order of the page", -1 not in at and at == sorted(at), path)
    same("every control shows that it has the focus", rings, [])
    page.js("document.getElementById('settings-open').focus()")
    page.press("k", ctrl=True)
    same("Ctrl+K goes to the message box", page.js("document.activeElement.id"), "input")
    page.type("one")
    page.press("Enter", shift=True)
    page.type("two")
    same("Shift+Enter breaks the line", page.js("document.getElementById('input').value"), "one\ntwo")
    page.js("document.getElementById('settings-open').focus()")
    page.press("Enter")
    check("a dialog takes the focus", page.js("document.getElementById('settings').contains(document.activeElement)"))
    page.press("Escape")
    same("and gives it back", page.js("[document.getElementById('settings').open, document.activeElement.id]"),
         [False, "settings-open"])
    clean(page, "keys")


def nameless(page):
    """Controls without an accessible name."""
    controls = {"button", "textbox", "link", "checkbox", "combobox", "switch", "spinbutton", "searchbox", "dialog",
                "navigation", "complementary", "region"}
    tree = page.call("Accessibility.getFullAXTree")["nodes"]
    found = [n for n in tree if not n.get("ignored") and n.get("role", {}).get("value") in controls]
    return len(found), [n["role"]["value"] for n in found if not n.get("name", {}).get("value", "").strip()]


def test_looks(browser, server):
    """Contrast, names and widths, light and dark, desk and phone, with everything on the page that there is."""
    page = fresh(browser, server)
    page.call("Accessibility.enable")
    rich = ("# Title\n\nText with `code`, **bold** and a [link](https://a.example/" + "x" * 90 + ").\n\n> quote\n\n"
            "```python\ndef f(n):  # comment\n    return \"text\" + str(1)" + " + 1" * 60 + "\n```\n\n"
            "| a | b | c |\n|---|---|---|\n| " + "wide " * 12 + "| " + "y" * 50 + " | z |\n\n- one\n  1. two\n\n" + "unbroken" * 30)
    steps = [(rich, 15, 15, [(f" {i}", i) for i in range(16)])]
    page.intercept("*/v1/chat/completions", lambda r: canned(steps, reasoning_content="hm"))
    ask(page, "question " + "w" * 120)
    page.intercept("*/v1/chat/completions", lambda r: (503, {}, ""))
    page.routes.reverse()
    ask(page, "fails")
    page.release()
    for scheme in ("light", "dark"):
        page.media(prefers_color_scheme=scheme)
        for width, height, phone in ((1280, 800, False), (360, 740, True)):
            page.size(width, height, phone)
            page.js("document.getElementById('panel-close').click()")
            if not phone:
                page.js("document.getElementById('panel-open').click()")
            for drafts in (False, True):
                page.js(f"document.getElementById('show-drafts').ariaChecked === '{str(drafts).lower()}' || "
                        "document.getElementById('show-drafts').click()")
                page.pump(0.3)
                what = f"{scheme}, {width} px, {'drafts' if drafts else 'text'}"
                weak = page.js("probe.weakTexts()")
                check(f"{what}: enough text was measured", weak["n"] > 20, weak["n"])
                same(f"{what}: contrast of texts", weak["out"], [])
                same(f"{what}: contrast of outlines", page.js("probe.weakEdges()"), [])
                same(f"{what}: nothing sticks out", page.js("probe.tooWide()"), [])
                shoot(page, f"rich-{scheme}-{width}-{'drafts' if drafts else 'text'}")
            n, bad = nameless(page)
            check(f"{scheme}, {width} px: controls have names", n >= 12 and not bad, (n, bad))
            for opener, closer in (("settings-open", "Escape"), ("panel-open", "panel-close"), ("side-open", "side-close")):
                if width > 1000 and opener != "settings-open":
                    continue
                page.js(f"document.getElementById('{opener}').click()")
                page.pump(0.2)
                what = f"{scheme}, {width} px, {opener}"
                same(f"{what}: contrast", page.js("probe.weakTexts().out"), [])
                same(f"{what}: outlines", page.js("probe.weakEdges()"), [])
                same(f"{what}: nothing sticks out", page.js("probe.tooWide()"), [])
                same(f"{what}: names", nameless(page)[1], [])
                shoot(page, f"{opener}-{scheme}-{width}")
                if opener == "side-open":
                    check(f"{what}: the page behind takes no input", page.js("document.getElementById('stage').inert"))
                page.press("Escape") if closer == "Escape" else page.js(f"document.getElementById('{closer}').click()")
    page.media(prefers_reduced_motion="reduce")
    page.js("document.body.append(Object.assign(document.createElement('p'), {className: 'waiting'}))")
    same("no motion for those who do not want it", page.js("getComputedStyle(document.body.lastChild, '::after').animationName"),
         "none")
    clean(page, "looks", ("503",))


def main():
    browser = None
    skipped = 0
    with Server("-t", "2") as server:
        test_files(server)
        if cdp.find_browser():
            browser = cdp.Browser()
            try:
                for test in (test_answer, test_stop, test_settings, test_markdown, test_hostile, test_figures, test_key,
                             test_keyboard, test_looks):
                    try:
                        test(browser, server)
                    except Exception:  # the others still run
                        check(test.__name__, False, serve_lib.traceback.format_exc())
            finally:
                browser.close()
        else:
            skipped = 9
            print("skip the chat page in a browser: there is no chromium here (tools/bootstrap --web installs it)")
    print(f"{serve_lib.passed} passed, {serve_lib.failed} failed" + (f", {skipped} skipped" if skipped else ""))
    sys.exit(1 if serve_lib.failed else 0)


main()
