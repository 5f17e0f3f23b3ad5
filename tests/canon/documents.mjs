// node documents.mjs SEED COUNT: lines "<a JSON text in some wild spelling>\t<its canonical form>".
import { generator, writeLines } from "./random.mjs";

const [seed, count] = process.argv.slice(2).map(Number);
const { u32, below } = generator(seed);

// Ranges that sort differently as UTF-8 and as UTF-16, need escapes, or are plain.
const ranges = [[0x61, 26], [0x30, 10], [0x01, 0x1f], [0x20, 0x60], [0x7f, 0x30], [0x7ff, 3], [0xd7f0, 0x10],
    [0xe000, 0x20], [0xfff0, 0x10], [0x10000, 0x20], [0x1f600, 0x40], [0x10fff0, 0x10]];
const text = () =>
    Array.from({ length: below(8) }, () => {
        const [from, n] = ranges[below(ranges.length)];
        return String.fromCodePoint(from + below(n));
    }).join("");
const number = () => [below(1000) - 500, (u32() - 2 ** 31) / 2 ** below(40), below(100) / 100,
    Number(`${below(1e6)}e-${below(300)}`), Number.MAX_SAFE_INTEGER, -0][below(6)];

function value(depth) {
    switch (below(depth > 0 ? 7 : 4)) {
        case 0: return [null, true, false][below(3)];
        case 1: return number();
        case 2: case 3: return text();
        case 4: return Array.from({ length: below(5) }, () => value(depth - 1));
        default: return new Map(Array.from({ length: below(below(10) ? 6 : 40) }, () => [text(), value(depth - 1)]));
    }
}

const canonical = (v) =>
    Array.isArray(v) ? `[${v.map(canonical).join(",")}]`
    : v instanceof Map ? `{${[...v.keys()].sort().map((k) => `${JSON.stringify(k)}:${canonical(v.get(k))}`).join(",")}}`
    : JSON.stringify(v);

const blank = () => " ".repeat(below(10) ? 0 : below(3));
const wildText = (s) =>
    `"${Array.from({ length: s.length }, (_, i) => {
        const c = s[i], code = s.charCodeAt(i), surrogate = code >= 0xd800 && code <= 0xdfff;
        const hex = `\\u${code.toString(16).padStart(4, "0")}`;
        if (surrogate) return s.codePointAt(0) % 2 ? hex : null; // one spelling for the whole text: pairs stay together
        if (code < 0x20 || c === '"' || c === "\\") return below(2) ? hex : JSON.stringify(c).slice(1, -1);
        return below(8) ? c : hex;
    }).map((c, i) => c ?? s[i]).join("")}"`;
const wildNumber = (x) => {
    const plain = Object.is(x, -0) ? "-0" : JSON.stringify(x);
    return [plain, /^-?[0-9.]+$/.test(plain) ? `${plain}e0` : plain, x.toExponential(), plain][below(4)];
};
const wild = (v) =>
    blank() + (Array.isArray(v) ? `[${v.map(wild).join(`${blank()},`)}${blank()}]`
        : v instanceof Map ? `{${[...v].map(([k, m]) => `${blank()}${wildText(k)}${blank()}:${wild(m)}`).join(",")}}`
        : typeof v === "string" ? wildText(v)
        : typeof v === "number" ? wildNumber(v)
        : JSON.stringify(v)) + blank();

function* lines() {
    for (let i = 0; i < count; i++) {
        const v = value(4);
        yield `${wild(v)}\t${canonical(v)}`;
    }
}
await writeLines(lines());
