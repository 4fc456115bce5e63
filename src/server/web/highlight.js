// Light colouring of code: comments, strings, numbers and words that a language reserves. One pass of one regular
// expression without nested repeats, so its time is linear in the text whatever a model writes.
const C_WORDS =
  "auto bool break case catch char class const constexpr continue default delete do double else enum export extends " +
  "extern final float for from func function go if implements import in inline int interface let long match mut new " +
  "namespace of package private protected public pub fn impl trait use mod static struct super switch template this " +
  "throw try type typedef typename typeof union unsigned using var void volatile while yield async await return " +
  "short signed sizeof goto register restrict instanceof defer range chan map select string byte rune true false " +
  "null undefined nil None self Self where loop move ref as dyn crate unsafe final override virtual";
const FAMILIES = {
  c: { comment: /\/\/[^\n]*|\/\*[^]*?(?:\*\/|$)/, words: C_WORDS },
  hash: {
    comment: /#[^\n]*/,
    words:
      "and as assert async await break class continue def del elif else except finally for from global if import in " +
      "is lambda nonlocal not or pass raise return try while with yield True False None self then fi do done case " +
      "esac function local export echo set unset end begin module require rescue unless until true false null",
  },
  sql: {
    comment: /--[^\n]*|\/\*[^]*?(?:\*\/|$)/,
    words:
      "select from where and or not null insert into values update set delete create table index view drop alter add " +
      "primary key foreign references join left right inner outer full on group by order having limit offset union " +
      "all distinct as case when then else end in is like between exists with",
    anyCase: true,
  },
  markup: { comment: /<!--[^]*?(?:-->|$)/, words: "", tags: true },
  data: { comment: null, words: "true false null" },
  css: { comment: /\/\*[^]*?(?:\*\/|$)/, words: "important media supports keyframes import" },
};
const LANGUAGES = {
  c: "c h cc cpp cxx hpp c++ cuda cu java js javascript jsx mjs ts typescript tsx go golang rust rs cs csharp kotlin " +
    "kt swift scala dart php zig",
  hash: "python py python3 sh bash shell zsh console ruby rb perl pl r yaml yml toml ini make makefile dockerfile " +
    "cmake conf nginx",
  sql: "sql sqlite postgresql mysql lua haskell hs",
  markup: "html xml svg xhtml vue",
  data: "json json5 jsonc",
  css: "css scss less",
};
const FAMILY_OF = new Map();
for (const [family, names] of Object.entries(LANGUAGES)) {
  for (const name of names.split(" ")) FAMILY_OF.set(name, family);
}
const STRING = /"(?:[^"\\\n]|\\.)*(?:"|(?=\n)|$)|'(?:[^'\\\n]|\\.)*(?:'|(?=\n)|$)|`(?:[^`\\]|\\[^])*(?:`|$)/;
const NUMBER = /\b(?:0[xXbBoO][\da-fA-F_]+|\d[\d_]*(?:\.\d+)?(?:[eE][+-]?\d+)?)\w*/;
const TAG = /<\/?[A-Za-z][\w:-]*|\/?>/;
const LONGEST = 60000; // characters; colouring more is not worth a pause

const compiled = new Map();

function rules(family) {
  if (compiled.has(family)) return compiled.get(family);
  const f = FAMILIES[family];
  const parts = [];
  if (f.comment) parts.push(`(?<comment>${f.comment.source})`);
  if (f.tags) parts.push(`(?<tag>${TAG.source})`);
  parts.push(`(?<string>${STRING.source})`, `(?<number>${NUMBER.source})`, "(?<word>[A-Za-z_]\\w*)");
  const words = new Set(f.words.split(" "));
  const rule = { re: new RegExp(parts.join("|"), "g"), has: (w) => words.has(f.anyCase ? w.toLowerCase() : w) };
  compiled.set(family, rule);
  return rule;
}

const KINDS = { comment: "c", string: "s", number: "n", tag: "k" };

// Fills a code element with the text, coloured when the language is known.
export function highlight(code, text, language) {
  const family = FAMILY_OF.get(language.toLowerCase());
  if (!family || text.length > LONGEST) {
    code.textContent = text;
    return;
  }
  const { re, has } = rules(family);
  const out = document.createDocumentFragment();
  let plain = 0;
  for (const m of text.matchAll(re)) {
    const kind = Object.keys(KINDS).find((k) => m.groups[k] !== undefined);
    const mark = kind ? KINDS[kind] : has(m[0]) ? "k" : "";
    if (!mark) continue;
    out.append(text.slice(plain, m.index));
    const span = document.createElement("span");
    span.className = "hl-" + mark;
    span.textContent = m[0];
    out.append(span);
    plain = m.index + m[0].length;
  }
  out.append(text.slice(plain));
  code.replaceChildren(out);
}
